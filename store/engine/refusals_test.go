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

// TestRefusalsBound checks which tokens one verdict of superseded rules out: those of step 4 that were granted, or those
// of step 3.
func TestRefusalsBound(t *testing.T) {
	for name, c := range map[string]struct {
		granted, last int64
		refused       int64 // the greatest token that is refused after token 5 was
	}{
		"tokens of another service above our own": {granted: 7, last: 900, refused: 7},
		"the last write is of the newest grant":   {granted: 9, last: 9, refused: 8},
		"a newer grant that has not written":      {granted: 9, last: 7, refused: 6},
		"nothing was written by a later token":    {granted: 9, last: 5, refused: 8},
		"the newest grant is the refused one":     {granted: 5, last: 900, refused: 5},
	} {
		m := newMemory(10)
		_, learn := m.check("lock", 5)
		learn(store.RejectedError{GrantedToken: c.granted, LastToken: c.last})
		for token := int64(1); token < 1000; token++ {
			if refused, _ := m.check("lock", token); refused != (token <= c.refused) {
				t.Errorf("%s: token %d is refused: %t, want the tokens up to %d", name, token, refused, c.refused)
				break
			}
		}
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
