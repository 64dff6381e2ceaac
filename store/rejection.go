package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Rejection is a write that the rule did not admit, or several alike.
type Rejection struct {
	ID       int64 // later groups have greater ones; those of the same tenth of a second in no order
	Resource Name
	Key      Name // empty where a transaction was refused for its token; of source sql the protected table
	Verdict  Verdict
	Reason   string
	Source   string // http, bulk, transaction or sql
	Address  string // of the client, without its port
	Token    int64  // 0: none was presented
	Sequence *int64

	GrantedToken, LastToken, LastSequence int64

	OwnerID string         // whose lease the token was; "" if that is not remembered
	Late    *time.Duration // how long after its lease had ended the latest came; nil if it had not, or is not remembered
	Count   int64
	FirstAt time.Time // by the clock of the gateway that saw it, like LastAt
	LastAt  time.Time
	// ChangedAt is when it was last recorded, by the database's clock.
	ChangedAt time.Time
	Principal string // that sent it; by SQL "sql:" and a role; "" at a gateway that asks for no credential
}

// SupersededBy is the newer token for which it was rejected; 0 where it was rejected for another reason.
func (r *Rejection) SupersededBy() int64 {
	if r.Reason != Superseded {
		return 0
	}
	return max(r.GrantedToken, r.LastToken)
}

// RejectionFilter selects rejections; what is zero selects all.
type RejectionFilter struct {
	Resource Name
	Prefix   string // of the resource's name: any text, not only whole segments
	Key      string // of source sql, the protected table
	Verdict  Verdict
	Reason   string
	Kind     RejectionKind
	Source   string
	OwnerID  string
	// Principal is who sent the writes.
	Principal string
	// Since leaves out those that were last seen before it, Until those that were not seen before it.
	Since, Until time.Time
	// Within are the names of resources that it is limited to, and the names below them; nil: all.
	Within []string
}

// filterBytesMax bounds the texts of a filter that have no limit of their own.
const filterBytesMax = 100

// Check returns ErrInvalid, naming the field, if the filter is outside its limits.
func (f *RejectionFilter) Check() error {
	if f.Verdict != "" && f.Verdict.Err() == nil && !slices.Contains(SQLVerdicts, f.Verdict) {
		return fmt.Errorf("%w: code must be one that a write is rejected with, like %s", ErrInvalid, VerdictTokenStale)
	}
	for _, text := range []struct {
		field, text string
		bytesMax    int
	}{
		{"prefix", f.Prefix, NameBytesMax}, {"key", f.Key, NameBytesMax}, {"reason", f.Reason, filterBytesMax}, {"source", f.Source, filterBytesMax},
		{"owner_id", f.OwnerID, OwnerBytesMax}, {"principal", f.Principal, principalTextMax},
	} {
		if err := checkText(text.field, text.text, 0, text.bytesMax); err != nil {
			return err
		}
	}
	return checkKind(f.Kind)
}

// Matches is what rejectionFilterSQL says.
func (f *RejectionFilter) Matches(r *Rejection) bool {
	return (f.Resource == "" || r.Resource == f.Resource) && strings.HasPrefix(string(r.Resource), f.Prefix) &&
		(f.Key == "" || string(r.Key) == f.Key) && (f.Verdict == "" || r.Verdict == f.Verdict) &&
		(f.Reason == "" || r.Reason == f.Reason) && (f.Kind == "" || r.Kind() == f.Kind) && (f.Source == "" || r.Source == f.Source) &&
		(f.OwnerID == "" || r.OwnerID == f.OwnerID) && (f.Principal == "" || r.Principal == f.Principal) &&
		isWithin(r.Resource, f.Within) && !r.LastAt.Before(f.Since) && (f.Until.IsZero() || r.FirstAt.Before(f.Until))
}

// rejectionFilterSQL is what filterArgs are the arguments of.
var rejectionFilterSQL = `($1 = '' or r.resource = $1) and starts_with(r.resource, $2) and ($3 = '' or r.code = $3) and ($4 = '' or r.reason = $4)
	and ($5 = '' or r.source = $5) and ($6 = '' or r.owner_id = $6) and r.last_at >= $7
	and ($8::timestamptz is null or r.first_at < $8) and ($9 = '' or r.key = $9) and ` + withinSQL("r.resource", "$10") + `
	and ($11 = '' or r.principal = $11) and ` + kindSQL("$12")

func filterArgs(f *RejectionFilter, more ...any) []any {
	var until *time.Time
	if !f.Until.IsZero() {
		until = &f.Until
	}
	return append([]any{f.Resource, f.Prefix, f.Verdict, f.Reason, f.Source, f.OwnerID, f.Since, until, f.Key, f.Within,
		f.Principal, causesOf(f.Kind)}, more...)
}

// RejectionOrder is how rejections are listed.
type RejectionOrder string

// The orders of rejections.
const (
	// RejectionsByFirstSeen has the newest group first. Groups keep their order.
	RejectionsByFirstSeen RejectionOrder = "first_seen"
	// RejectionsByLastSeen has first what changed last. A group that changes goes to the front.
	RejectionsByLastSeen RejectionOrder = "last_seen"
)

func (o RejectionOrder) check() error {
	switch o {
	case "", RejectionsByFirstSeen, RejectionsByLastSeen:
		return nil
	}
	return fmt.Errorf("%w: sort must be %s or %s", ErrInvalid, RejectionsByFirstSeen, RejectionsByLastSeen)
}

// RejectionMark is a position in a list of rejections.
type RejectionMark struct {
	ID        int64
	ChangedAt time.Time // where they are listed by it
}

// RejectionQuery asks for a part of a list of rejections.
type RejectionQuery struct {
	RejectionFilter

	Order RejectionOrder // "": RejectionsByFirstSeen
	After *RejectionMark // those behind it; nil: all
	Limit int            // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q *RejectionQuery) Check() error {
	return cmp.Or(checkLimit(q.Limit), q.RejectionFilter.Check(), q.Order.check())
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
// of a page gets no group twice; by RejectionsByLastSeen those that changed meanwhile are at the front, and not behind.
func (s *Store) Rejections(ctx context.Context, query RejectionQuery) ([]Rejection, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	var id *int64
	var changedAt *time.Time
	if query.After != nil {
		id, changedAt = &query.After.ID, &query.After.ChangedAt
	}
	if query.Order == RejectionsByLastSeen {
		return s.readRejections(ctx, rejectionsByLastSeenSQL, filterArgs(&query.RejectionFilter, id, changedAt, query.Limit)...)
	}
	return s.readRejections(ctx, rejectionsByFirstSeenSQL, filterArgs(&query.RejectionFilter, id, query.Limit)...)
}

// readRejections reads rows of rejectionColumns.
func (s *Store) readRejections(ctx context.Context, sql string, args ...any) ([]Rejection, error) {
	return collect(ctx, s.query, sql, args, pgx.RowToStructByPos[Rejection])
}
