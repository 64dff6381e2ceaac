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
	// Guard admits a transaction of a client of SQL, which in a history puts one row by its key.
	Guard       Kind = "guard"
	Set         Kind = "set"      // writes that are sent together: answered as one after the other
	Together    Kind = "together" // what is sent at once, none in the way of another; drivers take it apart
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
	Kind    Kind
	Name    store.Name
	Owner   string        `op:"owner"`
	Of      string        `op:"of"` // the principal of the owner: two principals may use the same owner_id
	Request string        `op:"request"`
	Mode    store.Mode    `op:"mode"`
	Scope   store.Scope   `op:"scope"`
	TTL     time.Duration `op:"ttl"`
	Wait    time.Duration `op:"wait"`
	Session uuid.UUID     `op:"session"`
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

	Policy store.Policy `op:"policy"`
	At     int          `op:"at"` // to which of several gateways it is sent
	Parts  []Op         // of a set, or together; of a transaction: its tokens, and then its puts and deletes
}

// Reads reports whether the operation changes nothing.
func (o Op) Reads() bool { return strings.HasPrefix(string(o.Kind), "read-") }
