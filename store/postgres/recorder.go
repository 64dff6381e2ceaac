package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// recorderGroupsMax bounds the memory of a Recorder: about 1 KiB a group.
	recorderGroupsMax = 10_000
	recorderInterval  = 100 * time.Millisecond
	recorderRepeat    = time.Second
	// recorderTimeout bounds a statement, which records some thousand groups a second.
	recorderTimeout      = 5 * time.Second
	recorderStatementMax = 1000
)

// Recorder writes rejections to the record in the background: it never delays a verdict and never changes one.
// Rejections with the same resource, token, verdict, reason, source, address and principal are one group with a count,
// in memory and in the database. When more than 10,000 groups wait, new ones are dropped and counted.
type Recorder struct {
	store      *Store
	onRecorded func([]store.Recorded)

	mu      sync.Mutex
	groups  map[group]*store.Rejection
	written map[group]time.Time // when, of the last second
	dropped uint64
}

type group struct {
	resource        store.Name
	verdict         store.Verdict
	token           int64
	reason          string
	source, address string
	principal       string
}

// NewRecorder returns a Recorder that waits to be Run.
func NewRecorder(on *Store) *Recorder {
	return &Recorder{store: on, groups: map[group]*store.Rejection{}, written: map[group]time.Time{}}
}

// OnRecorded sets the function that is called after each writing with what was written. It is called before Run.
func (r *Recorder) OnRecorded(recorded func([]store.Recorded)) { r.onRecorded = recorded }

// Record notes a rejection of a principal at an address. Its time is the gateway's clock: it decides nothing. Record
// does no I/O.
func (r *Recorder) Record(rejected *store.RejectedError, source, address, principal string) {
	now := time.Now()
	key := group{rejected.Resource, rejected.Verdict, rejected.Token, rejected.Reason, source, address, principal}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.groups[key]
	if seen == nil {
		if len(r.groups) >= recorderGroupsMax {
			r.dropped++
			return
		}
		seen = &store.Rejection{
			Resource: rejected.Resource, Verdict: rejected.Verdict, Reason: rejected.Reason,
			Source: source, Address: address, Principal: principal, Token: rejected.Token, FirstAt: now,
		}
		r.groups[key] = seen
	}
	seen.Key, seen.Sequence = rejected.Key, rejected.Sequence
	seen.GrantedToken, seen.LastToken, seen.LastSequence = rejected.GrantedToken, rejected.LastToken, rejected.LastSequence
	seen.LastAt = now
	seen.Count++
}

// Dropped returns how many rejections were not recorded because too many waited.
func (r *Recorder) Dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Run writes the noted rejections every 100 ms until ctx ends, and then once more. It writes a group at most once a
// second: zombies that retry fast would keep the database busy with their counts. What can't be written is kept for the
// next time; onError receives the error.
//
// The end of ctx does not cancel a statement that was sent: it may have committed, and would be counted twice.
func (r *Recorder) Run(ctx context.Context, onError func(error)) {
	statements := context.WithoutCancel(ctx)
	timing.Every(ctx, recorderInterval, onError, func() error { return r.flush(statements, r.take(recorderRepeat)) })
	if err := r.flush(statements, r.take(0)); err != nil {
		onError(err)
	}
}

// take removes and returns the groups that were last written at least that long ago.
func (r *Recorder) take(repeat time.Duration) map[group]*store.Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.written, func(_ group, at time.Time) bool { return now.Sub(at) >= repeat })
	taken := map[group]*store.Rejection{}
	for key, rejection := range r.groups {
		if _, lately := r.written[key]; !lately {
			taken[key] = rejection
			delete(r.groups, key)
			r.written[key] = now
		}
	}
	return taken
}

// flush writes groups, and keeps those that it can't write.
func (r *Recorder) flush(ctx context.Context, groups map[group]*store.Rejection) error {
	var err error
	for keys := range slices.Chunk(slices.Collect(maps.Keys(groups)), recorderStatementMax) {
		if err = r.write(ctx, groups, keys); err != nil {
			break
		}
	}
	r.keep(groups)
	return err
}

// write writes some of the groups in one statement, and removes them from groups.
func (r *Recorder) write(ctx context.Context, groups map[group]*store.Rejection, keys []group) error {
	rejections := make([]store.Rejection, len(keys))
	for i, key := range keys {
		rejections[i] = *groups[key]
	}
	ctx, cancel := context.WithTimeout(ctx, recorderTimeout)
	defer cancel()
	var recorded []store.Recorded
	err := r.store.traced(ctx, "record rejections", func(ctx context.Context) (err error) {
		recorded, err = r.store.recordRejections(ctx, rejections)
		return err
	}, func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.Int("fencegate.groups", len(rejections))}
	})
	for i, of := range recorded {
		if of.Writes > 0 {
			delete(groups, keys[i])
		}
	}
	if err != nil {
		r.store.CountRetry(err)
		return err
	}
	if r.onRecorded != nil {
		r.onRecorded(slices.DeleteFunc(recorded, func(of store.Recorded) bool { return of.Writes == 0 }))
	}
	return nil
}

// keep puts back groups that could not be written, merged with those noted meanwhile.
func (r *Recorder) keep(groups map[group]*store.Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, old := range groups {
		delete(r.written, key)
		newer := r.groups[key]
		switch {
		case newer != nil:
			newer.Count += old.Count
			newer.FirstAt = old.FirstAt
		case len(r.groups) < recorderGroupsMax:
			r.groups[key] = old
		default:
			r.dropped += uint64(old.Count)
		}
	}
}
