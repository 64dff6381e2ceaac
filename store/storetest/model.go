package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Model is a set of resources, the policies over them, and sessions. Like a Resource it is a value.
type Model struct {
	resources []named // few, in the order in which they were first used; what is pointed to is never changed
	policies  map[string]store.Policy
	sessions  map[uuid.UUID]Session
}

type named struct {
	name     store.Name
	resource *Resource
}

// Equal reports whether no operation can distinguish two models.
func (m Model) Equal(other Model) bool {
	if len(m.resources) != len(other.resources) || !maps.Equal(m.policies, other.policies) ||
		!maps.Equal(m.sessions, other.sessions) {
		return false
	}
	for _, of := range m.resources {
		if !of.resource.Equal(other.Resource(of.name)) {
			return false
		}
	}
	return true
}

// Hash is the same for equal models.
func (m Model) Hash() uint64 {
	sum := uint64(0)
	for _, of := range m.resources {
		sum ^= of.resource.hash()
	}
	return sum
}

// Resource returns the state of a name.
func (m Model) Resource(name store.Name) Resource {
	for _, of := range m.resources {
		if of.name == name {
			return *of.resource
		}
	}
	return Resource{}
}

// With returns the model in which a name has another state.
func (m Model) With(name store.Name, resource Resource) Model {
	m.resources = slices.Clone(m.resources)
	for i, of := range m.resources {
		if of.name == name {
			m.resources[i].resource = &resource
			return m
		}
	}
	m.resources = append(m.resources, named{name, &resource})
	return m
}

// cloned is a copy of a map, which may be nil, to put something in.
func cloned[K comparable, V any](from map[K]V) map[K]V {
	to := maps.Clone(from)
	if to == nil {
		to = map[K]V{}
	}
	return to
}

// WithPolicy returns the model in which the policy holds for its prefix.
func (m Model) WithPolicy(policy store.Policy) Model {
	m.policies = cloned(m.policies)
	m.policies[policy.Prefix] = policy
	return m
}

// WithoutPolicy returns the model in which a prefix has no policy of its own.
func (m Model) WithoutPolicy(prefix string) Model {
	m.policies = maps.Clone(m.policies)
	delete(m.policies, prefix)
	return m
}

// Policy returns what holds for a name: the policy of its longest prefix that has one, or the defaults.
func (m Model) Policy(name store.Name) store.Policy {
	for prefix := string(name); ; {
		if policy, ok := m.policies[prefix]; ok {
			return policy
		}
		if prefix == "" {
			return store.Policy{Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}
		}
		prefix = prefix[:max(0, strings.LastIndexByte(prefix, '/'))]
	}
}

// force is the grant that is in force on a name: the newest of those on it and the subtree grants above.
type force struct {
	token int64
	open  bool // whether it may still write
	Grant
}

func (m Model) inForce(name store.Name) force {
	r := m.Resource(name)
	newest := force{token: r.GrantedToken, open: r.Open}
	newest.Grant, _ = r.grant(r.GrantedToken)
	for _, of := range m.resources {
		if above := of.resource.covering; isBelow(name, of.name) && above.token > newest.token {
			newest = force{token: above.token, open: above.open}
			newest.Grant, _ = of.resource.grant(above.token)
		}
	}
	return newest
}

// Around returns the name, and those above and below it.
func (m Model) Around(name store.Name) []store.Name {
	var around []store.Name
	for _, of := range m.resources {
		if of.name == name || isBelow(of.name, name) || isBelow(name, of.name) {
			around = append(around, of.name)
		}
	}
	return around
}

// Granted is the token that is in force on a name, and its lease_id.
func (m Model) Granted(name store.Name) (token int64, leaseID uuid.UUID) {
	newest := m.inForce(name)
	return newest.token, newest.ID
}

// Fence is the answer to Fence.
func (m Model) Fence(name store.Name) Answer {
	r, newest := m.Resource(name), m.inForce(name)
	if max(newest.token, r.LastToken) == 0 {
		return Answer{Code: CodeNotFound}
	}
	return Answer{Code: CodeFence, GrantedToken: newest.token, Open: newest.open, LastToken: r.LastToken,
		LastSequence: r.LastSequence}
}

// Write decides one write and applies it if it is admitted.
func (m Model) Write(write store.Write) (Model, Answer) {
	next, answer := m.Resource(write.Resource).write(write, m.inForce(write.Resource), m.Policy(write.Resource))
	return m.With(write.Resource, next), answer
}

// Transact applies all operations of a transaction, or none. The first token that is refused decides, or else the first
// operation.
func (m Model) Transact(transaction store.Transaction) (Model, Answer) {
	content := contentOf(transaction.Operations)
	replayed := true
	for _, token := range transaction.Tokens {
		replayed = replayed && m.Resource(token.Resource).replays(token, content)
	}
	if replayed {
		return m, m.committed(transaction, true)
	}
	for _, token := range transaction.Tokens {
		if refused := m.Resource(token.Resource).judge(token, m.inForce(token.Resource),
			m.Policy(token.Resource)); refused != (Answer{}) {
			return m, refused
		}
	}
	for i, op := range transaction.Operations {
		if refused := m.Resource(op.Resource).precondition(op.Operation); refused != (Answer{}) {
			if refused.Code != CodeNotFound {
				refused.Op = i + 1
			}
			return m, refused
		}
	}

	next := m
	for _, token := range transaction.Tokens {
		raised := m.Resource(token.Resource).raised(token, content)
		for _, op := range transaction.Operations {
			if op.Resource == token.Resource {
				raised.lastCreated = raised.change(token, op.Operation) || raised.lastCreated
			}
		}
		next = next.With(token.Resource, raised)
	}
	return next, next.committed(transaction, false)
}

func (m Model) committed(transaction store.Transaction, replayed bool) Answer {
	versions := make([]int64, len(transaction.Operations))
	for i, op := range transaction.Operations {
		versions[i] = m.Resource(op.Resource).newestVersion
	}
	return Answer{Code: CodeAdmitted, Replayed: replayed, Versions: versionList(versions)}
}

// Summary is a line for people.
func (m Model) Summary() string {
	lines := make([]string, 0, len(m.resources))
	for _, of := range m.resources {
		r := of.resource
		newest, _ := r.Newest()
		lines = append(lines,
			fmt.Sprintf("%s: granted %d (%s, open %t, expires %d, running %d), below %d (open %t), last %d.%d, version %d",
				of.name, r.GrantedToken, cmp.Or(newest.End, "running"), r.Open, newest.ExpiresAt, len(r.Running()),
				r.covering.token, r.covering.open, r.LastToken, r.LastSequence, r.newestVersion))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}
