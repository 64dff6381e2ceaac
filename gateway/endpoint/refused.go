package endpoint

import (
	"net/http"
	"sync"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// refusalsMax bounds the entries that one gateway adds to the audit log for the accesses that it refuses in a minute,
// but one for all others: a client that sends as many as it can fills neither the log nor memory.
const refusalsMax = 20

// othersRefused is the reason in the entry that counts what has no entry of its own.
const othersRefused = "others"

// Refusals are accesses that were refused, until they are in the audit log: one of each principal, or of each address
// without one, and reason, with a count.
type Refusals struct {
	mu     sync.Mutex
	kinds  map[refusalKind]*store.Refusal
	others int64
}

type refusalKind struct{ who, reason string }

// note counts a refusal. It does no I/O.
func (f *Refusals) note(refusal store.Refusal) {
	kind := refusalKind{refusal.Principal, refusal.Details.Reason}
	if refusal.Principal == access.Anyone.Name {
		kind.who = refusal.Address
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds[kind] == nil {
		if len(f.kinds) >= refusalsMax {
			f.others++
			return
		}
		if f.kinds == nil {
			f.kinds = map[refusalKind]*store.Refusal{}
		}
		f.kinds[kind] = &refusal
	}
	f.kinds[kind].Details.Count++
}

// Take removes and returns all refusals.
func (f *Refusals) Take() []store.Refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	var taken []store.Refusal
	for _, refusal := range f.kinds {
		taken = append(taken, *refusal)
	}
	if f.others > 0 {
		taken = append(taken, store.Refusal{
			Principal: access.Anyone.Name, Details: store.RefusalDetails{Reason: othersRefused, Count: f.others},
		})
	}
	f.kinds, f.others = nil, 0
	return taken
}

// Lose counts refusals that could not be written among the others.
func (f *Refusals) Lose(refusals []store.Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, refusal := range refusals {
		f.others += refusal.Details.Count
	}
}

// noteUnauthenticated notes a credential that was refused.
func (s *Server) noteUnauthenticated(r *http.Request, reason auth.Reason) {
	if reason != auth.Missing && reason != auth.NotReady {
		s.Refusals.note(store.Refusal{
			Principal: access.Anyone.Name, Address: s.Address(r), Details: store.RefusalDetails{Reason: string(reason)},
		})
	}
}

// NoteForbidden notes what the principal of a request may not do, if that is why the request was refused. name is what it
// named; "": the name in its path, if that is valid.
func (s *Server) NoteForbidden(w *Answer, r *http.Request, name store.Name, code api.Code) {
	if code != api.CodeForbidden || w.Principal == nil || w.Principal.Kind == access.Anonymous {
		return
	}
	if name == "" && w.rule.Names == NameInPath {
		name, _ = store.ParseName("", w.rule.name(r))
	}
	s.Refusals.note(store.Refusal{
		Principal: w.Principal.Name, Address: s.Address(r), Name: name,
		Details: store.RefusalDetails{Reason: string(code)},
	})
}
