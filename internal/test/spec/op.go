package spec

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Kind is what an operation does.
type Kind string

// What clients send.
const (
	Acquire Kind = "acquire" // with a Wait: joins the queue
	Leave   Kind = "leave"   // the queue
	Renew   Kind = "renew"
	Release Kind = "release"
	Put     Kind = "put"
	Delete  Kind = "delete"
	Begin   Kind = "begin" // a transaction of a client of SQL, which takes its snapshot
	// Guard admits a transaction of a client of SQL, which in a history puts one row by its key.
	Guard       Kind = "guard"
	Set         Kind = "set"      // writes that are sent together: answered as one after the other
	Together    Kind = "together" // what several clients send at the same time: answered in some order
	Transact    Kind = "transact"
	OpenSession Kind = "open-session"
	KeepAlive   Kind = "keep-alive"
	EndSession  Kind = "end-session"
	ReadLock    Kind = "read-lock"
	ReadFence   Kind = "read-fence"
	ReadRecord  Kind = "read-record"
	ReadSession Kind = "read-session"
)

// What operators do.
const (
	Break        Kind = "break"
	SetPolicy    Kind = "set-policy"
	DeletePolicy Kind = "delete-policy"
	SetFence     Kind = "set-fence"
)

// What happens by itself.
const (
	Serve         Kind = "serve" // a waiter is granted the lock
	Expire        Kind = "expire"
	ExpireSession Kind = "expire-session"
	HoldOut       Kind = "hold-out" // a lease reaches the end of its max_hold
	Sweep         Kind = "sweep"
)

// What faults do, in a history ([Check]).
const (
	Crash Kind = "crash" // of the database
	Lose  Kind = "lose"  // what was answered between the times of this call, by a failover or a restore
)

// Token is a part of a transaction: the token under which it writes to a resource.
const Token Kind = "token"

// Op is one operation. What its kind does not need is zero. It has a text form: the kind, the name, and what else is not
// zero as field=value; the parts of a set or transaction follow, each after " ; ".
type Op struct {
	Kind      Kind
	Name      store.Name
	Owner     string        `op:"owner"`
	Principal string        `op:"principal"` // that sends it; "": the gateway asks for no credential
	Request   string        `op:"request"`
	Metadata  string        `op:"metadata"`
	Mode      store.Mode    `op:"mode"`
	Scope     store.Scope   `op:"scope"`
	TTL       time.Duration `op:"ttl"`
	Wait      time.Duration `op:"wait"`
	Session   uuid.UUID     `op:"session"`
	// NewestToken is the greatest on the name that the client knows of; 0: it does not say.
	NewestToken int64 `op:"newest_token"`

	// Token and LeaseID are those of a lease, or what a write presents. A zero LeaseID is none.
	Token    int64     `op:"token"`
	Sequence *int64    `op:"sequence"`
	LeaseID  uuid.UUID `op:"lease_id"`

	Key    store.Name `op:"key"`
	Type   string     `op:"type"`
	Value  string     `op:"value"`
	Expect *int64     `op:"expect"`

	// Of a client of SQL: the isolation level (Levels) and the way of its admission (Ways). Late: in the transaction that
	// was begun before. A Key is the name below the guarded one that it writes to.
	Level string `op:"level"`
	Way   string `op:"way"`
	Late  bool   `op:"late"`

	Policy store.Policy `op:"policy"`
	Reason string       `op:"reason"` // of a break
	At     int          `op:"at"`     // to which of several gateways it is sent
	Parts  []Op         // of a set, or together; of a transaction: its tokens, and then its puts and deletes
}

// Levels are the isolation levels of a transaction. The first is the default.
var Levels = []string{"", "repeatable read", "serializable"}

// Ways of a client of SQL to be admitted, or not.
const (
	ByGuard     = ""
	ByTryGuard  = "try"
	BySetting   = "set"       // fence.set_token
	InSavepoint = "savepoint" // which is released
	Undone      = "undone"    // in a savepoint that is rolled back before the write
	Unadmitted  = "none"
)

// Ways are those of a client that means to be admitted.
var Ways = []string{ByGuard, ByTryGuard, InSavepoint, BySetting}

// Reads reports whether the operation changes nothing.
func (o Op) Reads() bool { return strings.HasPrefix(string(o.Kind), "read-") }
