package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// RejectionTopMax is how many owners, and resources, a summary names.
const RejectionTopMax = 20

// RejectionSummary counts the rejections that match a filter.
type RejectionSummary struct {
	// Writes counts every one, Groups those alike once.
	Writes, Groups int64
	// ByVerdict and ByKind count writes.
	ByVerdict map[Verdict]int64
	ByKind    map[RejectionKind]int64
	// Owners and Resources have the most writes first, and at most RejectionTopMax. Rejections whose owner is not known
	// are of none.
	Owners, Resources []RejectionTop
}

// RejectionTop is an owner, or a resource, among those with the most rejections.
type RejectionTop struct {
	Name           string
	Writes, Groups int64
	LateMax        *time.Duration // of the latest of each group; nil where none is known to be late
	LastAt         time.Time
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
func (s *Store) RejectionSummary(ctx context.Context, filter RejectionFilter) (RejectionSummary, error) {
	if err := filter.Check(); err != nil {
		return RejectionSummary{}, err
	}
	summary := RejectionSummary{ByVerdict: map[Verdict]int64{}, ByKind: map[RejectionKind]int64{}}
	err := s.query(ctx, rejectionSummarySQL, filterArgs(&filter, RejectionTopMax), func(rows pgx.Rows) error {
		var kind string
		var top RejectionTop
		if err := rows.Scan(&kind, &top.Name, &top.Writes, &top.Groups, &top.LateMax, &top.LastAt); err != nil {
			return err
		}
		switch kind {
		case "all":
			summary.Writes, summary.Groups = top.Writes, top.Groups
		case "cause":
			verdict, reason, _ := strings.Cut(top.Name, "/")
			cause := RejectionCause{Verdict(verdict), reason}
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
