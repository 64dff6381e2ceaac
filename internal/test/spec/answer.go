package spec

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Codes of answers, besides the verdicts and the states of a lock.
const (
	CodeGranted  = "granted"
	CodeHeld     = "held_by_another" // or others are ahead
	CodeQueued   = "queued"
	CodeDeadlock = "deadlock"
	CodeLeft     = "left" // its caller left the queue
	CodeRenewed  = "renewed"
	CodeReleased = "released"
	CodeBroken   = "broken"
	CodeLost     = "lost"
	CodeNotFound = "not_found"
	CodeInvalid  = "invalid"
	CodeExternal = "external_authority"
	CodeAdmitted = string(store.Admitted)
	CodeFence    = "fence"
	CodeRecord   = "record"
	CodeDone     = "done"
	CodeSet      = "set"

	CodeSessionLost = "session_lost"
	CodeUnknown     = "unknown" // whether it happened
	CodeUnsupported = "unsupported"
	CodeWentBack    = "went_back"    // the client knows a newer token than there is
	CodeTokenReused = "token_reused" // by SQL: the last accepted transaction had this token and sequence
	CodeSnapshot    = "serialization_failure"
	CodeNotApplied  = "not_applied" // the database could not be reached
)

// Anybody is the owner if any of several may be in the answer.
const Anybody = "*"

// Answer is an answer as a value that can be compared: the contract's and the provider's must be the same.
type Answer struct {
	Code   string
	Reason string `op:"reason"` // of lost, session_lost and token_stale

	Token     int64         `op:"token"`
	ID        uuid.UUID     `op:"id"`
	Owner     string        `op:"owner"`
	Principal string        `op:"principal"`
	Metadata  string        `op:"metadata"`
	TTL       time.Duration `op:"ttl"`     // 0: unknown
	Lease     string        `op:"lease"`   // its mode and scope; "": unknown
	ExpiresAt int64         `op:"expires"` // microseconds; 0: unknown
	Others    string        `op:"others"`  // the holders besides the owner
	Leases    int64         `op:"leases"`  // of a session

	Version  int64  `op:"version"`
	Versions string `op:"versions"` // of a transaction
	Set      string `op:"set"`      // the answers to the writes of a set
	Created  bool   `op:"created"`
	Replayed bool   `op:"replayed"`
	Op       int    `op:"op"` // of a transaction that an operation's precondition refused: its index, from 1

	// Of a rejection's fence, or of CodeFence.
	GrantedToken int64  `op:"granted_token"`
	LastToken    int64  `op:"last_token"`
	LastSequence int64  `op:"last_sequence"`
	Open         bool   `op:"open"`
	Policy       string `op:"policy"`

	Record Record `op:"record"`
}

// Same compares answers. One of them may not know when a lease expires, for how long it was given, or who holds it.
func (a Answer) Same(other Answer) bool {
	if a.ExpiresAt == 0 || other.ExpiresAt == 0 {
		a.ExpiresAt, other.ExpiresAt = 0, 0
	}
	if a.TTL == 0 || other.TTL == 0 {
		a.TTL, other.TTL = 0, 0
	}
	if a.Lease == "" || other.Lease == "" {
		a.Lease, other.Lease = "", ""
	}
	if a.Owner == Anybody || other.Owner == Anybody {
		a.Owner, other.Owner, a.Principal, other.Principal = "", "", "", ""
	}
	return a == other
}

// Told is what every source tells of a rejection: the numbers of the fence with a stale or unknown token alone.
func (a Answer) Told() Answer {
	switch a.Code {
	case string(store.VerdictTokenRequired), string(store.VerdictLeaseMismatch), string(store.VerdictLeaseExpired):
		a.GrantedToken, a.LastToken, a.LastSequence = 0, 0, 0
	}
	return a
}

// AnswerOfSet is the answer to writes that were sent together.
func AnswerOfSet(answers []Answer) Answer {
	set := Answer{Code: CodeSet}
	for i, answer := range answers {
		set.Set += fmt.Sprintf("%d %s; ", i+1, answer)
	}
	return set
}
