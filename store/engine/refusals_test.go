package engine

import (
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// memory is a memory of refusals without an engine.
type memory struct{ *Refusals }

func newMemory(rememberedMax int) memory {
	r := newRefusals(rememberedMax)
	r.validate()
	return memory{r}
}

// check consults the memory about a write. learn ends that with the verdict.
func (m memory) check(resource store.Name, token int64) (refused bool, learn func(store.RejectedError)) {
	rejected, was := m.consult(&store.Write{WriteToken: store.WriteToken{Resource: resource, Token: token}})
	return rejected != nil, func(verdict store.RejectedError) {
		verdict.Resource, verdict.Token, verdict.Verdict, verdict.Reason = resource, token, store.VerdictTokenStale,
			store.Superseded
		m.learn(was, fmt.Errorf("wrapped: %w", &verdict))
	}
}

// TestRefusalsDoNotLearnOldVerdicts forgets between a question and its verdict, which may be by the former policy.
func TestRefusalsDoNotLearnOldVerdicts(t *testing.T) {
	m := newMemory(10)
	verdict := store.RejectedError{GrantedToken: 9, LastToken: 5, LastSequence: 1}
	_, learn := m.check("lock", 5)
	m.forget()
	learn(verdict)
	if m.len() != 0 {
		t.Error("a verdict was learned that is older than what was forgotten")
	}
	_, learn = m.check("lock", 5)
	learn(verdict)
	if refused, _ := m.check("lock", 8); !refused {
		t.Error("nothing was learned")
	}
}

// TestRefusalsBounded checks that no more is remembered than the limit, and that the least recently used is forgotten
// first.
func TestRefusalsBounded(t *testing.T) {
	for _, most := range []int{1, 10, 100, 1000} {
		m := newMemory(most)
		for n := range 10 * most {
			_, learn := m.check(store.Name(fmt.Sprintf("lock-%d", n)), 5)
			learn(store.RejectedError{GrantedToken: 9, LastToken: 9})
			if most > 64 {
				if refused, learn := m.check("hammered", 5); !refused && n > 0 {
					t.Fatalf("of %d, the resource that keeps coming was forgotten", most)
				} else if !refused {
					learn(store.RejectedError{GrantedToken: 9, LastToken: 9})
				}
			}
		}
		if n := m.len(); n > most || n < most/2 {
			t.Errorf("%d are remembered, and %d may be", n, most)
		}
	}
}
