package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
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
	FirstAt time.Time // by the clock of the gateway that saw it, by SQL of the database, like LastAt
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

// Observed reports whether the write passed, because its table is in the mode "observe". Of the rejections by SQL, only
// those have a table and an address: a table of the mode "enforce" has the transaction rolled back, and its address too.
func (r *Rejection) Observed() bool { return r.Source == "sql" && r.Key != "" && r.Address != "" }

// RejectionFilter selects rejections; a zero field selects all.
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
	// Since leaves out rejections last seen before it, Until those first seen at or after it.
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

// Matches reports whether the filter selects a rejection. The lists of the database select the same.
func (f *RejectionFilter) Matches(r *Rejection) bool {
	return (f.Resource == "" || r.Resource == f.Resource) && strings.HasPrefix(string(r.Resource), f.Prefix) &&
		(f.Key == "" || string(r.Key) == f.Key) && (f.Verdict == "" || r.Verdict == f.Verdict) &&
		(f.Reason == "" || r.Reason == f.Reason) && (f.Kind == "" || r.Kind() == f.Kind) && (f.Source == "" || r.Source == f.Source) &&
		(f.OwnerID == "" || r.OwnerID == f.OwnerID) && (f.Principal == "" || r.Principal == f.Principal) &&
		isWithin(r.Resource, f.Within) && !r.LastAt.Before(f.Since) && (f.Until.IsZero() || r.FirstAt.Before(f.Until))
}

// RejectionOrder is how rejections are listed.
type RejectionOrder string

// The orders of rejections.
const (
	// RejectionsByFirstSeen has the newest group first. Groups keep their order.
	RejectionsByFirstSeen RejectionOrder = "first_seen"
	// RejectionsByLastSeen has the last change first. A group that changes moves to the front.
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

const (
	// RejectionsMissedMax is how many changes are read at once; where there are more, none of them is returned.
	RejectionsMissedMax = 1000
	// RejectionsResumable is the longest pause after which a reader of changes can resume without a gap.
	RejectionsResumable = time.Hour
)

// RejectionFollower reads the changes of rejections one after the other and loses none, at whichever gateway they
// happen. It is used by one goroutine at a time.
type RejectionFollower interface {
	// Next reads what has changed since the last reading that succeeded; the first returns nothing but its time. It
	// returns ErrUnavailable.
	Next(ctx context.Context) (RejectionChanges, error)
}

// RejectionChanges are those of one reading, in the order of ChangedAt.
type RejectionChanges struct {
	// At is the database's clock at the reading, or a little before. A reader that has seen everything until here
	// continues after it.
	At      time.Time
	Changed []Rejection
	// Missed says that there are more than RejectionsMissedMax, or that the database's clock has gone back: then
	// Changed is empty, although rejections may have changed after Since. A list read from now on shows them.
	Missed bool
	Since  time.Time
}

// RejectionDetail is a rejection with the leases that it concerns, as far as the database still has them.
type RejectionDetail struct {
	Rejection
	Lease     *LeaseInfo // of the token that was presented; nil: not known
	Successor *LeaseInfo // of the newer token; nil: not known, or there is none
}

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

// Recorded describes rejections that the database has recorded: the writes of one group since its last record.
type Recorded struct {
	Verdict Verdict
	Writes  int64
	// Late is how long after its lease had ended the latest of them came; nil if it had not, or is not remembered.
	Late *time.Duration
	// TokenAge is how long before the latest of them its token had been granted; nil if that is not remembered.
	TokenAge *time.Duration
}
