package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// rejectionFilterSQL is the condition whose arguments filterArgs returns.
var rejectionFilterSQL = `($1 = '' or r.resource = $1) and starts_with(r.resource, $2) and ($3 = '' or r.code = $3) and ($4 = '' or r.reason = $4)
	and ($5 = '' or r.source = $5) and ($6 = '' or r.owner_id = $6) and r.last_at >= $7
	and ($8::timestamptz is null or r.first_at < $8) and ($9 = '' or r.key = $9) and ` + withinSQL("r.resource", "$10") + `
	and ($11 = '' or r.principal = $11) and ` + kindSQL("$12")

func filterArgs(f *store.RejectionFilter, more ...any) []any {
	var until *time.Time
	if !f.Until.IsZero() {
		until = &f.Until
	}
	return append([]any{f.Resource, f.Prefix, f.Verdict, f.Reason, f.Source, f.OwnerID, f.Since, until, f.Key, f.Within,
		f.Principal, causesOf(f.Kind)}, more...)
}

// rejectionColumns are the fields of a Rejection.
const rejectionColumns = `r.id, r.resource, r.key, r.code, r.reason, r.source, r.address, r.fencing_token, r.sequence,
	r.granted_token, r.last_token, r.last_sequence, coalesce(r.owner_id, ''), r.late_ms * interval '1 millisecond',
	r.count, r.first_at, r.last_at, r.changed_at, r.principal`

var (
	rejectionsByFirstSeenSQL = "select " + rejectionColumns + " from fence.rejections r where " + rejectionFilterSQL + `
		and ($13::bigint is null or r.id < $13)
		order by r.id desc limit $14`
	rejectionsByLastSeenSQL = "select " + rejectionColumns + " from fence.rejections r where " + rejectionFilterSQL + `
		and ($13::bigint is null or (r.changed_at, r.id) < ($14::timestamptz, $13::bigint))
		order by r.changed_at desc, r.id desc limit $15`
)

// Rejections returns rejected writes. It returns ErrInvalid or ErrUnavailable. A reader that continues after the last
// group of a page gets no group twice; by RejectionsByLastSeen, groups that changed meanwhile are at the front.
func (s *Store) Rejections(ctx context.Context, query store.RejectionQuery) ([]store.Rejection, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	var id *int64
	var changedAt *time.Time
	if query.After != nil {
		id, changedAt = &query.After.ID, &query.After.ChangedAt
	}
	if query.Order == store.RejectionsByLastSeen {
		return s.readRejections(ctx, rejectionsByLastSeenSQL, filterArgs(&query.RejectionFilter, id, changedAt, query.Limit)...)
	}
	return s.readRejections(ctx, rejectionsByFirstSeenSQL, filterArgs(&query.RejectionFilter, id, query.Limit)...)
}

// readRejections reads rows of rejectionColumns.
func (s *Store) readRejections(ctx context.Context, sql string, args ...any) ([]store.Rejection, error) {
	return collect(ctx, s.query, sql, args, pgx.RowToStructByPos[store.Rejection])
}

// kindSQL is the condition that the rejection r is of a kind: argument has its causes, or is null for any kind. Like
// [store.RejectionCause.Kind], it goes by the verdict alone if the reason is not known.
func kindSQL(argument string) string {
	var known []string
	for _, cause := range store.RejectionCauses() {
		known = append(known, "'"+cause.String()+"'")
	}
	slices.Sort(known) // the same text each time: statements are prepared by it
	return fmt.Sprintf(`(%[1]s::text[] is null or r.code || '/' || r.reason = any (%[1]s)
		or r.code || '/' = any (%[1]s) and r.code || '/' || r.reason not in (%[2]s))`, argument, strings.Join(known, ", "))
}

// causesOf returns the causes of a kind, for kindSQL; nil for "", which is any kind.
func causesOf(kind store.RejectionKind) []string {
	if kind == "" {
		return nil
	}
	causes := []string{}
	for _, cause := range store.RejectionCauses() {
		if cause.Kind() == kind {
			causes = append(causes, cause.String())
		}
	}
	return causes
}

// rejectionOverlap is how far before a reading the next one begins. A change gets its changed_at before it becomes
// visible: by at most 5 s, the bound of fence.record_rejections, and a commit that waits for no standby. See the test
// that takes the overlap away.
const rejectionOverlap = 10 * time.Second

// rejectionFollower is a RejectionFollower. Changes become visible later than their changed_at says, and not in its
// order. So each reading looks back rejectionOverlap from the last one, and leaves out groups returned with the same
// count. Of a group that changes often, it returns the latest change.
type rejectionFollower struct {
	store *Store
	at    time.Time // of the last reading, by the database's clock; zero before the first
	seen  map[int64]seenRejection
}

type seenRejection struct {
	count     int64
	changedAt time.Time
}

// FollowRejections returns a RejectionFollower that begins with its first reading.
func (s *Store) FollowRejections() store.RejectionFollower {
	return &rejectionFollower{store: s, seen: map[int64]seenRejection{}}
}

// Next is that of a RejectionFollower.
func (f *rejectionFollower) Next(ctx context.Context) (store.RejectionChanges, error) {
	now, err := f.store.databaseTime(ctx)
	if err != nil {
		return store.RejectionChanges{}, err
	}
	first := f.at.IsZero()
	back := !first && now.Before(f.at)
	from := f.at
	if first || back {
		from = now
	}
	since := from.Add(-rejectionOverlap)
	maps.DeleteFunc(f.seen, func(_ int64, seen seenRejection) bool { return seen.changedAt.Before(since) })
	changed, more, err := f.store.changedSince(ctx, store.RejectionFilter{}, since, f.seen)
	if err != nil {
		return store.RejectionChanges{}, err
	}
	f.at = now
	for i := range changed {
		f.seen[changed[i].ID] = seenRejection{changed[i].Count, changed[i].ChangedAt}
	}
	changes := store.RejectionChanges{At: now, Since: since, Missed: !first && (more || back)}
	if !first && !changes.Missed {
		changes.Changed = changed
	}
	return changes, nil
}

// RejectionsSince reads matching changes since a reader stopped that had all earlier ones; it reads some of them again.
// It returns ErrInvalid or ErrUnavailable. Too many changes are Missed, and so are those of a reader that stopped more
// than RejectionsResumable ago, or in the future.
func (s *Store) RejectionsSince(
	ctx context.Context, filter store.RejectionFilter, stopped time.Time,
) (store.RejectionChanges, error) {
	if err := filter.Check(); err != nil {
		return store.RejectionChanges{}, err
	}
	now, err := s.databaseTime(ctx)
	if err != nil {
		return store.RejectionChanges{}, err
	}
	changes := store.RejectionChanges{At: now, Since: stopped.Add(-rejectionOverlap)}
	if stopped.Before(now.Add(-store.RejectionsResumable)) || stopped.After(now.Add(time.Second)) {
		changes.Missed = true
		return changes, nil
	}
	changes.Changed, changes.Missed, err = s.changedSince(ctx, filter, changes.Since, nil)
	return changes, err
}

// databaseTime is read before the changes: a change that they don't show yet is older by at most the overlap.
func (s *Store) databaseTime(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.queryRow(ctx, statement{}, "select clock_timestamp()", nil, &now)
	return now, err
}

// changedSinceSQL reads at most RejectionsMissedMax rows besides those that were returned, even if zombies change many
// more. It is one statement, so it shows one moment.
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
func (s *Store) changedSince(ctx context.Context, filter store.RejectionFilter, since time.Time,
	seen map[int64]seenRejection) (
	changed []store.Rejection, more bool, err error,
) {
	ids := slices.Collect(maps.Keys(seen))
	counts := make([]int64, len(ids))
	for i, id := range ids {
		counts[i] = seen[id].count
	}
	const most = store.RejectionsMissedMax + 1
	changed, err = s.readRejections(ctx, changedSinceSQL, filterArgs(&filter, since, len(ids)+most, ids, counts, most)...)
	if len(changed) == most {
		return nil, true, err
	}
	return changed, false, err
}

var leasesOfTokensSQL = fmt.Sprintf(leasesListSQL, leaseColumns, withinSQL("l.lock", "@within")+`
	and l.lock = any (fence.ancestors(@resource) || @resource::text) and l.fencing_token = any (@tokens) and `)

// RejectionDetail returns a rejection by its ID. within limits the names that the caller sees, as in a
// [store.RejectionFilter]: RejectionDetail returns ErrNotFound for rejections on other names, and leaves out their
// leases. It returns ErrUnavailable, too.
func (s *Store) RejectionDetail(ctx context.Context, id int64, within []string) (store.RejectionDetail, error) {
	found, err := s.readRejections(ctx, "select "+rejectionColumns+" from fence.rejections r where r.id = $1", id)
	if err != nil {
		return store.RejectionDetail{}, err
	}
	if visible := (store.RejectionFilter{Within: within}); len(found) == 0 || !visible.Matches(&found[0]) {
		return store.RejectionDetail{}, store.ErrNotFound
	}
	detail := store.RejectionDetail{Rejection: found[0]}
	tokens := []int64{detail.Token, detail.SupersededBy()}
	args := pgx.NamedArgs{
		"resource": detail.Resource, "tokens": tokens, "within": within, "token": max(tokens[0], tokens[1]), "after": "",
		"limit": len(tokens),
	}
	// Leases are on the resource's name or, with the scope subtree, on one above it.
	leases, err := collect(ctx, s.query, leasesOfTokensSQL, []any{pgx.QueryExecModeCacheDescribe, args}, readLeaseInfo)
	for i := range leases {
		if leases[i].Token == detail.Token {
			detail.Lease = &leases[i]
		} else {
			detail.Successor = &leases[i]
		}
	}
	return detail, err
}

var rejectionSummarySQL = `
	with found as materialized (
		select r.code, r.reason, r.owner_id, r.resource, r.count, r.late_ms * interval '1 millisecond' as late, r.last_at
		from fence.rejections r where ` + rejectionFilterSQL + `
	)
	select 'all' as kind, '' as name, coalesce(sum(f.count), 0)::bigint as writes, count(*) as groups, null::interval as late,
		timestamptz 'epoch' as last_at
	from found f
	union all
	select 'cause', f.code || '/' || f.reason, sum(f.count)::bigint, count(*), max(f.late), max(f.last_at)
	from found f group by f.code, f.reason
	union all (
		select 'owner', f.owner_id, sum(f.count)::bigint as writes, count(*), max(f.late), max(f.last_at)
		from found f where f.owner_id is not null group by f.owner_id order by writes desc, f.owner_id collate "C" limit $13)
	union all (
		select 'resource', f.resource, sum(f.count)::bigint as writes, count(*), max(f.late), max(f.last_at)
		from found f group by f.resource order by writes desc, f.resource limit $13)
	order by kind, writes desc, name`

// RejectionSummary counts the rejections that match. It returns ErrInvalid or ErrUnavailable.
func (s *Store) RejectionSummary(ctx context.Context, filter store.RejectionFilter) (store.RejectionSummary, error) {
	if err := filter.Check(); err != nil {
		return store.RejectionSummary{}, err
	}
	summary := store.RejectionSummary{ByVerdict: map[store.Verdict]int64{}, ByKind: map[store.RejectionKind]int64{}}
	err := s.query(ctx, rejectionSummarySQL, filterArgs(&filter, store.RejectionTopMax), func(rows pgx.Rows) error {
		var kind string
		var top store.RejectionTop
		if err := rows.Scan(&kind, &top.Name, &top.Writes, &top.Groups, &top.LateMax, &top.LastAt); err != nil {
			return err
		}
		switch kind {
		case "all":
			summary.Writes, summary.Groups = top.Writes, top.Groups
		case "cause":
			verdict, reason, _ := strings.Cut(top.Name, "/")
			cause := store.RejectionCause{Verdict: store.Verdict(verdict), Reason: reason}
			summary.ByVerdict[cause.Verdict] += top.Writes
			summary.ByKind[cause.Kind()] += top.Writes
		case "owner":
			summary.Owners = append(summary.Owners, top)
		case "resource":
			summary.Resources = append(summary.Resources, top)
		}
		return nil
	})
	return summary, err
}

const recordRejectionsSQL = `
	select rejected_code, writes, lateness_ms * interval '1 millisecond', token_age_ms * interval '1 millisecond'
	from fence.record_rejections($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

// recordRejections adds rejections, each group once, to the record. It returns a Recorded for each, with 0 writes if
// another session has locked the group's row.
func (s *Store) recordRejections(ctx context.Context, rejections []store.Rejection) ([]store.Recorded, error) {
	var (
		resources, keys, verdicts, reasons, sources, addresses, principals []string
		tokens, granted, lastTokens, lastSequences, counts                 []int64
		sequences                                                          []*int64
		first, last                                                        []time.Time
	)
	for _, r := range rejections {
		resources, keys = append(resources, string(r.Resource)), append(keys, string(r.Key))
		verdicts, reasons = append(verdicts, string(r.Verdict)), append(reasons, r.Reason)
		sources, addresses = append(sources, r.Source), append(addresses, r.Address)
		principals = append(principals, r.Principal)
		tokens, sequences = append(tokens, r.Token), append(sequences, r.Sequence)
		granted, lastTokens = append(granted, r.GrantedToken), append(lastTokens, r.LastToken)
		lastSequences, counts = append(lastSequences, r.LastSequence), append(counts, r.Count)
		first, last = append(first, r.FirstAt), append(last, r.LastAt)
	}
	args := []any{resources, keys, verdicts, reasons, sources, addresses, tokens, sequences, granted, lastTokens,
		lastSequences, counts, first, last, principals}
	return collect(ctx, s.query, recordRejectionsSQL, args, pgx.RowToStructByPos[store.Recorded])
}
