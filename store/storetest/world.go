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

// World is a set of resources, the policies over them, and sessions. Like a Resource it is a value.
type World struct {
	resources []named // few, in the order in which they were first used; what is pointed to is never changed
	policies  map[string]store.Policy
	sessions  map[uuid.UUID]Session
}

type named struct {
	name     store.Name
	resource *Resource
}

// Equal reports whether two worlds can't be told apart by any operation.
func (w World) Equal(other World) bool {
	if len(w.resources) != len(other.resources) || !maps.Equal(w.policies, other.policies) || !maps.Equal(w.sessions, other.sessions) {
		return false
	}
	for _, of := range w.resources {
		if !of.resource.Equal(other.Resource(of.name)) {
			return false
		}
	}
	return true
}

// Hash is the same for equal worlds.
func (w World) Hash() uint64 {
	sum := uint64(0)
	for _, of := range w.resources {
		sum ^= of.resource.hash()
	}
	return sum
}

// Resource returns the state of a name.
func (w World) Resource(name store.Name) Resource {
	for _, of := range w.resources {
		if of.name == name {
			return *of.resource
		}
	}
	return Resource{}
}

// With returns the world in which a name has another state.
func (w World) With(name store.Name, resource Resource) World {
	w.resources = slices.Clone(w.resources)
	for i, of := range w.resources {
		if of.name == name {
			w.resources[i].resource = &resource
			return w
		}
	}
	w.resources = append(w.resources, named{name, &resource})
	return w
}

// WithPolicy returns the world in which the policy holds for its prefix.
func (w World) WithPolicy(policy store.Policy) World {
	w.policies = maps.Clone(w.policies)
	if w.policies == nil {
		w.policies = map[string]store.Policy{}
	}
	w.policies[policy.Prefix] = policy
	return w
}

// WithoutPolicy returns the world in which a prefix has no policy of its own.
func (w World) WithoutPolicy(prefix string) World {
	w.policies = maps.Clone(w.policies)
	delete(w.policies, prefix)
	return w
}

// Policy returns what holds for a name: the policy of its longest prefix that has one, or the defaults.
func (w World) Policy(name store.Name) store.Policy {
	for prefix := string(name); ; {
		if policy, ok := w.policies[prefix]; ok {
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

func (w World) inForce(name store.Name) force {
	r := w.Resource(name)
	newest := force{token: r.GrantedToken, open: r.Open}
	newest.Grant, _ = r.grant(r.GrantedToken)
	for _, of := range w.resources {
		if above := of.resource.covering; isBelow(name, of.name) && above.token > newest.token {
			newest = force{token: above.token, open: above.open}
			newest.Grant, _ = of.resource.grant(above.token)
		}
	}
	return newest
}

// Around returns the name, and those above and below it.
func (w World) Around(name store.Name) []store.Name {
	var around []store.Name
	for _, of := range w.resources {
		if of.name == name || isBelow(of.name, name) || isBelow(name, of.name) {
			around = append(around, of.name)
		}
	}
	return around
}

// Granted is the token that is in force on a name, and its lease_id.
func (w World) Granted(name store.Name) (token int64, leaseID uuid.UUID) {
	newest := w.inForce(name)
	return newest.token, newest.ID
}

// Fence tells how the fence of a name stands.
func (w World) Fence(name store.Name) Told {
	r, newest := w.Resource(name), w.inForce(name)
	if max(newest.token, r.LastToken) == 0 {
		return Told{Code: CodeNotFound}
	}
	return Told{Code: CodeFence, GrantedToken: newest.token, Open: newest.open, LastToken: r.LastToken, LastSequence: r.LastSequence}
}

// Write decides one write and applies it if it is admitted.
func (w World) Write(write store.Write) (World, Told) {
	next, told := w.Resource(write.Resource).write(write, w.inForce(write.Resource), w.Policy(write.Resource))
	return w.With(write.Resource, next), told
}

// Transact applies all operations of a transaction, or none. The first claim that is refused decides, or else the first operation.
func (w World) Transact(transaction store.Transaction) (World, Told) {
	content := contentOf(transaction.Operations)
	replayed := true
	for _, claim := range transaction.Tokens {
		replayed = replayed && w.Resource(claim.Resource).replays(claim, content)
	}
	if replayed {
		return w, w.committed(transaction, true)
	}
	for _, claim := range transaction.Tokens {
		if refused := w.Resource(claim.Resource).judge(claim, w.inForce(claim.Resource), w.Policy(claim.Resource)); refused != (Told{}) {
			return w, refused
		}
	}
	for i, op := range transaction.Operations {
		if refused := w.Resource(op.Resource).precondition(op.Operation); refused != (Told{}) {
			if refused.Code != CodeNotFound {
				refused.Op = i + 1
			}
			return w, refused
		}
	}

	next := w
	for _, claim := range transaction.Tokens {
		raised := w.Resource(claim.Resource).raised(claim, content)
		for _, op := range transaction.Operations {
			if op.Resource == claim.Resource {
				raised.lastCreated = raised.change(claim, op.Operation) || raised.lastCreated
			}
		}
		next = next.With(claim.Resource, raised)
	}
	return next, next.committed(transaction, false)
}

func (w World) committed(transaction store.Transaction, replayed bool) Told {
	versions := make([]int64, len(transaction.Operations))
	for i, op := range transaction.Operations {
		versions[i] = w.Resource(op.Resource).newestVersion
	}
	return Told{Code: CodeAdmitted, Replayed: replayed, Versions: versionList(versions)}
}

// Summary is a line for people.
func (w World) Summary() string {
	lines := make([]string, 0, len(w.resources))
	for _, of := range w.resources {
		r := of.resource
		newest, _ := r.Newest()
		lines = append(lines, fmt.Sprintf("%s: granted %d (%s, open %t, expires %d, running %d), below %d (open %t), last %d.%d, version %d",
			of.name, r.GrantedToken, cmp.Or(newest.End, "running"), r.Open, newest.ExpiresAt, len(r.Running()),
			r.covering.token, r.covering.open, r.LastToken, r.LastSequence, r.newestVersion))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}
