package gateway

import (
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// A refusal from memory names the fence as it was seen last, and says that it may be newer by now.
func TestRefusalFromMemorySaysAtLeast(t *testing.T) {
	h := newHarness(t, Config{})
	first := h.acquire(t, "job", "w1")
	h.release(t, first)
	second := h.acquire(t, "job", "w2")
	asked := refused(t, h.put(t, first, 1, "late"), api.CodeTokenStale)
	h.put(t, second, 1, "x")
	refused(t, h.put(t, first, 1, "late"), api.CodeTokenStale)
	remembered := refused(t, h.put(t, first, 2, "late"), api.CodeTokenStale)
	for _, problem := range []api.Problem{asked, remembered} {
		if *problem.GrantedToken != second.FencingToken {
			t.Fatalf("granted_token is %d, want %d", *problem.GrantedToken, second.FencingToken)
		}
	}
	if strings.Contains(asked.Detail, "or a newer one") || !strings.Contains(asked.Detail, "is in force by now") {
		t.Errorf("the database's refusal says %q", asked.Detail)
	}
	if h.store.RefusedEarly() == 0 {
		t.Fatal("nothing was refused from memory")
	}
	if !strings.Contains(remembered.Detail, "or a newer one is in force by now") {
		t.Errorf("the refusal from memory says %q", remembered.Detail)
	}
}
