package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// State is a set of resources, the queues before them, the policies over them, and sessions.
type State struct {
	// Elsewhere: leases are kept in Redis, which keeps neither shared nor subtree leases, nor sessions. While one runs,
	// nothing but its own request is known.
	Elsewhere bool

	resources []named // few, in the order in which they were first used; what is pointed to is never changed
	policies  map[string]store.Policy
	sessions  []Session // in the order in which they were opened
	begun     *snapshot // of the transaction that a client of SQL has begun
	queue     []Op      // the acquires that wait, for all locks, in their order
	granted   []grantOf // all leases, in the order of their grants

	without Switch // what the explorer leaves out
}

type named struct {
	name     store.Name
	resource *Resource
}

type snapshot struct {
	State
	level string
	asked []store.Name // for whose subtrees a lease was requested since, granted or not: that marks the name
}

// asking is the snapshot of a transaction after an acquire of another.
func (b *snapshot) asking(op Op) *snapshot {
	if b == nil || op.Scope != store.Subtree {
		return b
	}
	return &snapshot{b.State, b.level, append(slices.Clone(b.asked), op.Name)}
}

type grantOf struct {
	lock  store.Name
	token int64
}

// Resource is one name: its lock, its fence and its records. The zero value is a name that was never used.
type Resource struct {
	GrantedToken int64
	Open         bool // whether the newest grant may still write
	LastToken    int64
	LastSequence int64

	subtree int64 // the newest subtree grant on the name, which may write below while it is the granted one, and open
	adopted int64 // the token of a subtree grant above that may write here, above the granted one; 0: none

	// Of the last accepted write, by which its retry is known and answered. Empty if it was not numbered.
	lastContent string
	lastCreated bool

	newestVersion int64 // that any record ever had

	leases  []Lease // oldest first
	records map[store.Name]Record
}

// Lease is a grant and what became of it. Times are microseconds by the database's clock.
type Lease struct {
	Lock      store.Name
	Token     int64
	ID        uuid.UUID
	Owner     string
	Principal string
	Request   string
	Metadata  string
	Mode      store.Mode
	Scope     store.Scope
	Session   uuid.UUID // zero: in none; else its heartbeats move its expiry
	TTL       time.Duration
	AskedTTL  time.Duration // of the acquire; 0 in a session
	GrantedAt int64
	ExpiresAt int64 // 0: unknown, since the answer to a renewal was lost
	HoldUntil int64 // 0: no limit
	End       End

	replaced bool // it had expired, and the lock was granted to another owner
	alone    bool // it expired before its session
	settled  bool // its session was over, and its fence was closed for that
}

// End is how a lease or a session ended.
type End string

// The ends, as a LostError gives them for a reason.
const (
	Running  End = ""
	Expired  End = "expired" // and was not released or broken since
	Released End = "released"
	Broken   End = "broken"
)

// Session is one heartbeat for many leases, and what became of it.
type Session struct {
	ID        uuid.UUID
	Owner     string
	Principal string
	TTL       time.Duration
	CreatedAt int64
	ExpiresAt int64 // microseconds by the database's clock; 0: unknown, since the answer to a heartbeat was lost
	End       End
}

// Record is a record as it is stored.
type Record struct {
	Version     int64  `op:"version"`
	Token       int64  `op:"token"`
	Sequence    int64  `op:"sequence"`
	Numbered    bool   `op:"numbered"`
	ContentType string `op:"type"`
	Value       string `op:"value"`
}

// Equal reports whether no operation can distinguish two states.
func (s State) Equal(other State) bool {
	if len(s.resources) != len(other.resources) || !maps.Equal(s.policies, other.policies) ||
		!slices.Equal(s.sessions, other.sessions) || len(s.queue) != len(other.queue) {
		return false
	}
	for i := range s.queue {
		if s.queue[i].Request != other.queue[i].Request || s.queue[i].Owner != other.queue[i].Owner ||
			s.queue[i].Name != other.queue[i].Name {
			return false
		}
	}
	for _, of := range s.resources {
		if !of.resource.equal(other.Resource(of.name)) {
			return false
		}
	}
	return true
}

func (r Resource) equal(other Resource) bool {
	return r.GrantedToken == other.GrantedToken && r.Open == other.Open &&
		r.LastToken == other.LastToken && r.LastSequence == other.LastSequence &&
		r.lastContent == other.lastContent && r.lastCreated == other.lastCreated && r.newestVersion == other.newestVersion &&
		r.subtree == other.subtree && r.adopted == other.adopted && slices.Equal(r.leases, other.leases) && maps.Equal(r.records, other.records)
}

// Hash is the same for equal states.
func (s State) Hash() uint64 {
	sum := uint64(0)
	for _, of := range s.resources {
		one := uint64(len(of.resource.leases))
		for _, number := range []int64{of.resource.GrantedToken, of.resource.LastToken, of.resource.LastSequence,
			of.resource.newestVersion} {
			one = one*31 + uint64(number)
		}
		sum ^= one
	}
	return sum
}

// Resource returns the state of a name.
func (s State) Resource(name store.Name) Resource {
	for _, of := range s.resources {
		if of.name == name {
			return *of.resource
		}
	}
	return Resource{}
}

func (s State) with(name store.Name, resource Resource) State {
	s.resources = slices.Clone(s.resources)
	for i, of := range s.resources {
		if of.name == name {
			s.resources[i].resource = &resource
			return s
		}
	}
	s.resources = append(s.resources, named{name, &resource})
	return s
}

func (s State) withLease(lock store.Name, lease Lease) State {
	return s.with(lock, s.Resource(lock).with(lease))
}

// cloned is a copy of a map, which may be nil, to put something in.
func cloned[K comparable, V any](from map[K]V) map[K]V {
	to := maps.Clone(from)
	if to == nil {
		to = map[K]V{}
	}
	return to
}

// Policy returns what holds for a name: the policy of its longest prefix that has one, or the defaults.
func (s State) Policy(name store.Name) store.Policy {
	for prefix := string(name); ; {
		if policy, ok := s.policies[prefix]; ok {
			return policy
		}
		if prefix == "" {
			return store.Policy{Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}
		}
		prefix = prefix[:max(0, strings.LastIndexByte(prefix, '/'))]
	}
}

// force is the grant that is in force on a name.
type force struct {
	token int64
	open  bool // whether it may still write
	Lease
}

// inForce is the newest of the grants on the name itself, and of the subtree grants on the names above.
func (s State) inForce(name store.Name) force {
	r := s.Resource(name)
	newest := force{token: r.GrantedToken, open: r.Open}
	newest.Lease, _ = r.lease(r.GrantedToken)
	for _, of := range s.resources {
		if above := of.resource; isBelow(name, of.name) && above.subtree > newest.token {
			newest = force{token: above.subtree, open: above.opensBelow()}
			newest.Lease, _ = above.lease(above.subtree)
		}
	}
	return newest
}

// opensBelow reports whether the newest subtree grant on the name may write below it.
func (r Resource) opensBelow() bool { return r.Open && r.subtree == r.GrantedToken }

// isLocal reports whether the fence admits the token without a look above: as that of its own grant, or an adopted one.
func (r Resource) isLocal(token int64) bool {
	return r.Open && token == r.GrantedToken || r.adopted > 0 && token == r.adopted
}

// deciding is the grant in force that decides about a write. A fence looks above only for a token that it does not admit.
func (s State) deciding(op Op) force {
	own := s.Resource(op.Name)
	if !own.isLocal(op.Token) {
		return s.inForce(op.Name)
	}
	decides := force{token: op.Token, open: true}
	for _, of := range s.resources {
		if lease, ok := of.resource.lease(op.Token); ok && lease.covers(op.Name) {
			decides.Lease = lease
		}
	}
	return decides
}

// closeAdopted closes the fences below that adopted a subtree's token.
func (s State) closeAdopted(lock store.Name, token int64) State {
	for _, of := range s.resources {
		if isBelow(of.name, lock) && token > 0 && of.resource.adopted == token {
			shut := *of.resource
			shut.adopted = 0
			s = s.with(of.name, shut)
		}
	}
	return s
}

// Granted is the token that is in force on a name, and its lease_id.
func (s State) Granted(name store.Name) (token int64, leaseID uuid.UUID) {
	newest := s.inForce(name)
	return newest.token, newest.ID
}

// Last is the number of the last write to a name.
func (s State) Last(name store.Name) (token, sequence int64) {
	r := s.Resource(name)
	return r.LastToken, r.LastSequence
}

// Version returns the version of a record; 0 if there is none.
func (s State) Version(name, key store.Name) int64 { return s.Resource(name).records[key].Version }

// around returns the name, and those above and below it.
func (s State) around(name store.Name) []store.Name {
	var around []store.Name
	for _, of := range s.resources {
		if of.name == name || isBelow(of.name, name) || isBelow(name, of.name) {
			around = append(around, of.name)
		}
	}
	return around
}

// Leases returns all leases, in the order of their grants.
func (s State) Leases() []Lease {
	leases := make([]Lease, len(s.granted))
	for i, of := range s.granted {
		leases[i], _ = s.Resource(of.lock).lease(of.token)
	}
	return leases
}

// Sessions returns all sessions, in the order in which they were opened.
func (s State) Sessions() []Session { return s.sessions }

// Queue returns the acquires that wait, in their order.
func (s State) Queue() []Op { return s.queue }

func (s State) names() names {
	n := names{leases: s.Leases()}
	for _, session := range s.sessions {
		n.sessions = append(n.sessions, session.ID)
	}
	return n
}

// Text is the text of an operation, with the leases and sessions of the state by their names: a script of such lines can
// be run again ([ParseOp]).
func (s State) Text(op Op) string { return s.names().op(op) }

// Newest returns the newest lease; ok is false if there was none.
func (r Resource) Newest() (lease Lease, ok bool) {
	if len(r.leases) == 0 {
		return Lease{}, false
	}
	return r.leases[len(r.leases)-1], true
}

// Running returns the leases that run, the oldest first.
func (r Resource) Running() []Lease {
	var running []Lease
	for _, lease := range r.leases {
		if lease.End == Running {
			running = append(running, lease)
		}
	}
	return running
}

// Keys returns the keys of all records, in order.
func (r Resource) Keys() []store.Name { return slices.Sorted(maps.Keys(r.records)) }

// Runs reports whether the lease with this token runs.
func (s State) Runs(lock store.Name, token int64) bool {
	lease, ok := s.Resource(lock).lease(token)
	return ok && lease.End == Running
}

func (r Resource) lease(token int64) (lease Lease, ok bool) {
	i := slices.IndexFunc(r.leases, func(l Lease) bool { return l.Token == token })
	if i < 0 {
		return Lease{}, false
	}
	return r.leases[i], true
}

func (r Resource) requested(request string) (Lease, bool) {
	i := slices.IndexFunc(r.leases, func(l Lease) bool { return l.Request == request })
	if request == "" || i < 0 {
		return Lease{}, false
	}
	return r.leases[i], true
}

// closed returns the state in which a grant may not write any more. A newer one still may.
func (r Resource) closed(token int64) Resource {
	if r.GrantedToken == token {
		r.Open = false
	}
	return r
}

// with returns the state in which one lease is another.
func (r Resource) with(changed Lease) Resource {
	r.leases = slices.Clone(r.leases)
	for i := range r.leases {
		if r.leases[i].Token == changed.Token {
			r.leases[i] = changed
		}
	}
	return r
}

func (s State) session(id uuid.UUID) (Session, bool) {
	i := slices.IndexFunc(s.sessions, func(session Session) bool { return session.ID == id })
	if i < 0 {
		return Session{}, false
	}
	return s.sessions[i], true
}

func (s State) withSession(changed Session) State {
	s.sessions = slices.Clone(s.sessions)
	for i := range s.sessions {
		if s.sessions[i].ID == changed.ID {
			s.sessions[i] = changed
		}
	}
	return s
}

// Summary is a line for people.
func (s State) Summary() string {
	lines := make([]string, 0, len(s.resources))
	for _, of := range s.resources {
		r := of.resource
		newest, _ := r.Newest()
		lines = append(lines,
			fmt.Sprintf("%s: granted %d (%s, open %t, expires %d, running %d), below %d (open %t), last %d.%d, version %d",
				of.name, r.GrantedToken, cmp.Or(newest.End, "running"), r.Open, newest.ExpiresAt, len(r.Running()),
				r.subtree, r.opensBelow(), r.LastToken, r.LastSequence, r.newestVersion))
	}
	slices.Sort(lines)
	for _, waiting := range s.queue {
		lines = append(lines, "waits: "+waiting.String())
	}
	return strings.Join(lines, "; ")
}

// isBelow reports whether a name is below another one.
func isBelow(name, above store.Name) bool { return strings.HasPrefix(string(name), string(above)+"/") }
