package store

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// RejectionsMissedMax is how many changes are read at once; where there are more, none of them is returned.
	RejectionsMissedMax = 1000
	// RejectionsResumable is how long ago a reader of changes may have stopped and still go on without a gap.
	RejectionsResumable = time.Hour
)

// rejectionOverlap is how far before a reading the next one begins. A change has its changed_at before it becomes
// visible: at most the 5 s that fence.record_rejections may take, and its commit, which waits for no standby. See the
// test that takes the overlap away.
const rejectionOverlap = 10 * time.Second

// RejectionFollower reads the changes of rejections one after the other and loses none, at whichever gateway they
// happen. It is used by one goroutine at a time.
type RejectionFollower interface {
	// Next reads what has changed since the last reading that succeeded; the first returns nothing but its time. It
	// returns ErrUnavailable.
	Next(ctx context.Context) (RejectionChanges, error)
}

// rejectionFollower is a RejectionFollower. Changes become visible later than their changed_at says, and not in its
// order. So each reading looks back rejectionOverlap from the reading before, and leaves out what it has returned: a
// group with that count. Of a group that changes often, the latest is returned.
type rejectionFollower struct {
	store *Store
	at    time.Time // of the last reading, by the database's clock; zero before the first
	seen  map[int64]seenRejection
}

type seenRejection struct {
	count     int64
	changedAt time.Time
}

// RejectionChanges are those of one reading, in the order of ChangedAt.
type RejectionChanges struct {
	// At is the database's clock at the reading, or a little before. A reader that has seen everything until here
	// continues after it.
	At      time.Time
	Changed []Rejection
	// Missed says that there are more than RejectionsMissedMax, or that the database's clock has gone back: then Changed
	// is empty, and something after Since is not returned. What is listed from now on has it.
	Missed bool
	Since  time.Time
}

// FollowRejections returns a RejectionFollower that begins with its first reading.
func (s *Store) FollowRejections() RejectionFollower {
	return &rejectionFollower{store: s, seen: map[int64]seenRejection{}}
}

// Next is that of a RejectionFollower.
func (f *rejectionFollower) Next(ctx context.Context) (RejectionChanges, error) {
	now, err := f.store.databaseTime(ctx)
	if err != nil {
		return RejectionChanges{}, err
	}
	first := f.at.IsZero()
	back := !first && now.Before(f.at)
	from := f.at
	if first || back {
		from = now
	}
	since := from.Add(-rejectionOverlap)
	maps.DeleteFunc(f.seen, func(_ int64, seen seenRejection) bool { return seen.changedAt.Before(since) })
	changed, more, err := f.store.changedSince(ctx, RejectionFilter{}, since, f.seen)
	if err != nil {
		return RejectionChanges{}, err
	}
	f.at = now
	for i := range changed {
		f.seen[changed[i].ID] = seenRejection{changed[i].Count, changed[i].ChangedAt}
	}
	changes := RejectionChanges{At: now, Since: since, Missed: !first && (more || back)}
	if !first && !changes.Missed {
		changes.Changed = changed
	}
	return changes, nil
}

// RejectionsSince reads what matches and has changed since a reader stopped that had all changes until then; it reads
// some of them again. It returns ErrInvalid or ErrUnavailable. Where there are too many changes, or it stopped more
// than RejectionsResumable ago or in the future, they are Missed.
func (s *Store) RejectionsSince(
	ctx context.Context, filter RejectionFilter, stopped time.Time,
) (RejectionChanges, error) {
	if err := filter.Check(); err != nil {
		return RejectionChanges{}, err
	}
	now, err := s.databaseTime(ctx)
	if err != nil {
		return RejectionChanges{}, err
	}
	changes := RejectionChanges{At: now, Since: stopped.Add(-rejectionOverlap)}
	if stopped.Before(now.Add(-RejectionsResumable)) || stopped.After(now.Add(time.Second)) {
		changes.Missed = true
		return changes, nil
	}
	changes.Changed, changes.Missed, err = s.changedSince(ctx, filter, changes.Since, nil)
	return changes, err
}

// databaseTime is read before the changes: what they don't show yet is not older than this by more than the overlap.
func (s *Store) databaseTime(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.queryRow(ctx, statement{}, "select clock_timestamp()", nil, &now)
	return now, err
}

// changedSinceSQL looks at no more rows than have been returned, and RejectionsMissedMax besides, whatever a storm of
// zombies changes. It is one statement: all that it shows is of one moment.
var changedSinceSQL = `
	with recent as materialized (
		select r.id, r.count from fence.rejections r where ` + rejectionFilterSQL + ` and r.changed_at >= $13
		order by r.changed_at, r.id limit $14
	)
	select ` + rejectionColumns + `
	from recent c join fence.rejections r on r.id = c.id
	where not exists (select from unnest($15::bigint[], $16::bigint[]) as seen (id, count) where seen.id = c.id and seen.count = c.count)
	order by r.changed_at, r.id
	limit $17`

// changedSince reads changes that have not been returned; more says that there are more than RejectionsMissedMax, and
// then none is returned.
func (s *Store) changedSince(ctx context.Context, filter RejectionFilter, since time.Time,
	seen map[int64]seenRejection) (
	changed []Rejection, more bool, err error,
) {
	ids := slices.Collect(maps.Keys(seen))
	counts := make([]int64, len(ids))
	for i, id := range ids {
		counts[i] = seen[id].count
	}
	const most = RejectionsMissedMax + 1
	changed, err = s.readRejections(ctx, changedSinceSQL, filterArgs(&filter, since, len(ids)+most, ids, counts, most)...)
	if len(changed) == most {
		return nil, true, err
	}
	return changed, false, err
}
