package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RejectionKind says what a rejection shows about its writer. Only a zombie has lost its lock.
type RejectionKind string

// The kinds of rejections.
const (
	// KindZombie: the lease of the token had ended, or a newer token was granted or used.
	KindZombie RejectionKind = "zombie"
	// KindNumbering: the same token with this number, or a greater one, was accepted before.
	KindNumbering RejectionKind = "numbering"
	// KindReader: the token is that of a shared lease, which can't write.
	KindReader RejectionKind = "reader"
	// KindConflict: the record has another version than the write requires. This is how compare-and-swap works.
	KindConflict RejectionKind = "conflict"
	// KindMisuse: no token, one that was never granted, the lease_id of another lease, or a truncate.
	KindMisuse RejectionKind = "misuse"
)

// RejectionKinds are all kinds.
var RejectionKinds = []RejectionKind{KindZombie, KindNumbering, KindReader, KindConflict, KindMisuse}

// RejectionCause is what a kind follows from. Reason is that of token_stale, otherwise empty.
type RejectionCause struct {
	Verdict Verdict
	Reason  string
}

// String returns the cause as verdict/reason.
func (c RejectionCause) String() string { return string(c.Verdict) + "/" + c.Reason }

// kindOfCause is the only classification of rejections: the API, the metrics and the dashboard show its result.
var kindOfCause = map[RejectionCause]RejectionKind{
	{VerdictTokenStale, Superseded}: KindZombie,
	{VerdictTokenStale, "released"}: KindZombie,
	{VerdictTokenStale, "reused"}:   KindNumbering,
	{VerdictTokenStale, "shared"}:   KindReader,
	{VerdictTokenStale, ""}:         KindZombie, // a count without its reason, or a reason that a newer schema has
	{VerdictLeaseExpired, ""}:       KindZombie,
	{VerdictTokenReused, ""}:        KindNumbering,
	{VerdictVersionMismatch, ""}:    KindConflict,
	{VerdictTokenRequired, ""}:      KindMisuse,
	{VerdictTokenUnknown, ""}:       KindMisuse,
	{VerdictLeaseMismatch, ""}:      KindMisuse,
	{VerdictTruncate, ""}:           KindMisuse,
}

// RejectionCauses returns all causes that are classified by themselves, in no order.
func RejectionCauses() []RejectionCause { return slices.Collect(maps.Keys(kindOfCause)) }

// IsKnown reports whether the cause is classified by itself.
func (c RejectionCause) IsKnown() bool { return kindOfCause[c] != "" }

// Kind returns the kind of the cause, or of its verdict if the reason is not known.
func (c RejectionCause) Kind() RejectionKind {
	if kind, ok := kindOfCause[c]; ok {
		return kind
	}
	return kindOfCause[RejectionCause{Verdict: c.Verdict}]
}

// Kind returns the kind of the rejection.
func (e *RejectedError) Kind() RejectionKind { return RejectionCause{e.Verdict, e.Reason}.Kind() }

// Kind returns the kind of the rejection.
func (r *Rejection) Kind() RejectionKind { return RejectionCause{r.Verdict, r.Reason}.Kind() }

func checkKind(kind RejectionKind) error {
	if kind == "" || slices.Contains(RejectionKinds, kind) {
		return nil
	}
	return fmt.Errorf("%w: kind must be zombie, numbering, reader, conflict or misuse", ErrInvalid)
}

// RejectionClass is what rejected writes are counted by.
type RejectionClass struct {
	Verdict Verdict
	Kind    RejectionKind
	// Observed: the writes passed, because their tables are in the mode "observe". Only writes by SQL, which no gateway
	// counts, so it is no part of the text.
	Observed bool
}

// RejectionClasses returns all classes of enforced rejections, in no order.
func RejectionClasses() []RejectionClass {
	classes := map[RejectionClass]bool{}
	for cause, kind := range kindOfCause {
		classes[RejectionClass{Verdict: cause.Verdict, Kind: kind}] = true
	}
	return slices.Collect(maps.Keys(classes))
}

// MarshalText makes the class a key of a JSON object, such as "token_stale/zombie".
func (c RejectionClass) MarshalText() ([]byte, error) {
	return []byte(string(c.Verdict) + "/" + string(c.Kind)), nil
}

// UnmarshalText reads a key of MarshalText, or the verdict alone.
func (c *RejectionClass) UnmarshalText(text []byte) error {
	verdict, kind, classified := strings.Cut(string(text), "/")
	c.Verdict, c.Kind = Verdict(verdict), RejectionKind(kind)
	if !classified {
		c.Kind = RejectionCause{Verdict: c.Verdict}.Kind()
	}
	return nil
}
