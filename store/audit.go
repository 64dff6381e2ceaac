package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/access"
)

// Actor is the author of an administrator's action, for the audit log. The zero value is the role of this process's
// connection to the database.
type Actor struct {
	Principal string
	Address   string // of the client, without its port
	Scoped    bool   // it administers only some names: how much it may do is bounded (ErrLimit)
}

type actorKey struct{}

// WithActor returns a context for the actions of an actor: PutPolicy, DeletePolicy, SetFence, Break, CreateKey, RotateKey
// and RevokeKey.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor of a context of WithActor.
func ActorOf(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}

// Actions are the kinds of entries in the audit log.
var Actions = []string{
	"policy_set", "policy_deleted", "lease_broken", "fence_set", "key_created", "key_rotated", "key_revoked",
	"database_accepted", "table_protected", "table_unprotected", "table_opened", "table_closed",
	"names_allowed", "names_disallowed", RefusedAction,
}

// RefusedAction is the kind of the entries that NoteRefusals makes. Administrators did not cause them.
const RefusedAction = "access_refused"

// AuditEntry is an action of an administrator. It was recorded in the transaction of the action.
type AuditEntry struct {
	ID        int64
	At        time.Time
	Principal string // by SQL: "sql:" and the role
	Address   string // of the client; "local": a local socket of the database
	Action    string // one of Actions
	Name      string // the lock, the resource, or the prefix of the policy; "": none, or all names
	Details   json.RawMessage
}

// AuditSeal has the hashes of some entries of the audit log, and that of the seal before it (fence.seal_audit).
type AuditSeal struct {
	Seal     int64  // 1 is the first one
	AtUS     int64  // when it was made, in microseconds since 1970
	Previous string // the hash of the seal before; "": there is none
	Hash     string // "": entries say that they are of this seal, which does not exist
	Entries  []SealedEntry
}

// AuditSealsMax is how many seals are read at once.
const AuditSealsMax = 20

// SealedEntry is an entry of the audit log, as its seal has it and as it is.
type SealedEntry struct {
	ID   int64
	AtUS int64  // in microseconds since 1970; 0: it is prunable
	Hash string // of the text; "": the seal does not have it
	Text string // "": it was deleted
}

// Refusal is a number of accesses that a gateway refused, to one principal or address for one reason.
type Refusal struct {
	Principal string         `json:"principal"`
	Address   string         `json:"address"`
	Name      Name           `json:"name"` // as Address, of the first one; "": none
	Details   RefusalDetails `json:"details"`
}

// RefusalDetails are those of an entry RefusedAction.
type RefusalDetails struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// AuditFilter selects entries of the audit log; a zero field selects all.
type AuditFilter struct {
	Action    string
	Principal string
	Name      Name
	Prefix    string // of the name: any text, not only whole segments
	// Since leaves out earlier entries, Until those at that time or later.
	Since, Until time.Time
	// Within selects these names and those below them; nil: all. An action without a name is on all.
	Within []string
}

// principalTextMax is the most bytes of a principal's name, also of a role's.
const principalTextMax = PrincipalMax + len(access.SQLPrefix)

// AuditQuery asks for a part of the audit log, the newest entry first.
type AuditQuery struct {
	AuditFilter

	Before int64 // the ID of the last entry that was read; 0: none was
	Limit  int   // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q *AuditQuery) Check() error {
	if q.Action != "" && !slices.Contains(Actions, q.Action) {
		return fmt.Errorf("%w: action must be one like %s or %s", ErrInvalid, Actions[0], Actions[2])
	}
	return cmp.Or(checkLimit(q.Limit), checkText("principal", q.Principal, 0, principalTextMax),
		checkText("prefix", q.Prefix, 0, NameBytesMax))
}
