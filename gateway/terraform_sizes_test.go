package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestSlow_TerraformLargeStates checks that a state of 60 MiB is stored, read and kept as a version, and that one over the
// limit is refused with the name of its flag.
func TestSlow_TerraformLargeStates(t *testing.T) {
	h := newGateway(t, Config{Terraform: true}, patientDatabase(t))
	h.serveUnchecked(t)
	c := h.terraform("prod")
	c.mustLock(t, "a")
	large := strings.Repeat("y", 60<<20)
	c.mustWrite(t, "a", 1, large)
	c.expects(t, 1, large)
	tooLarge := expectProblem(t, c.write(t, "a", 2, strings.Repeat("y", 65<<20)), api.CodeTooLarge)
	if want := "The body is over the limit of 67108864 bytes (--terraform-state-bytes-max)."; tooLarge.Detail != want {
		t.Errorf("a state of 65 MiB is refused with %q, want %q", tooLarge.Detail, want)
	}
	if kept := c.versions(t); len(kept) != 1 || kept[0].Size != int64(len(stateText(1, large))) {
		t.Errorf("the versions are %+v, want one of %d bytes", kept, len(stateText(1, large)))
	}
}

// TestTerraformCrowdOfLargeStates checks that the states that many clients write or read at the same time use up to
// --bodies-bytes-max: each request is served, or refused as one to repeat.
func TestTerraformCrowdOfLargeStates(t *testing.T) {
	const bytes, most, clients = 1<<20 + 1, 4 << 20, 10
	h := newGateway(t, Config{Terraform: true, TerraformStateBytesMax: most, BodiesBytesMax: most}, patientDatabase(t))
	h.serveUnchecked(t)
	text := strings.Repeat("y", bytes)
	for i := range clients {
		h.terraform(fmt.Sprint(i)).mustLock(t, fmt.Sprint(i))
		h.terraform(fmt.Sprint(i)).mustWrite(t, fmt.Sprint(i), 1, text)
	}
	for _, crowd := range []struct {
		name string
		send func(c stateClient, id string) answer
	}{
		{"written", func(c stateClient, id string) answer { return c.write(t, id, 2, text) }},
		{"read", func(c stateClient, _ string) answer { return c.send(t, http.MethodGet, c.path, "", c.headers...) }},
	} {
		answers := make(chan answer, clients)
		for i := range clients {
			go func() { answers <- crowd.send(h.terraform(fmt.Sprint(i)), fmt.Sprint(i)) }()
		}
		served := 0
		for range clients {
			got := await.Receive(t, "an answer", answers)
			switch got.status {
			case http.StatusOK:
				served++
			case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			default:
				t.Errorf("%s: answered %d, want 200, 429 or 503", got.request, got.status)
			}
			if held := h.gateway.Bodies.Bytes(); held > most {
				t.Errorf("%d bytes of states are held, want up to %d", held, most)
			}
		}
		if served == 0 {
			t.Errorf("none of %d states was %s", clients, crowd.name)
		}
	}
	await.True(t, "the budget is free again", func() bool { return h.gateway.Bodies.Bytes() == 0 })
}

// TestTerraformAnswersAreCounted checks that a state is read only while --bodies-bytes-max has room for it.
func TestTerraformAnswersAreCounted(t *testing.T) {
	const most = 4 << 20
	h := newGateway(t, Config{Terraform: true, TerraformStateBytesMax: most, BodiesBytesMax: most}, patientDatabase(t))
	h.serveUnchecked(t)
	c := h.terraform("prod")
	c.mustLock(t, "a")
	c.mustWrite(t, "a", 1, strings.Repeat("y", most/2))
	paths := []string{c.path, fmt.Sprintf("%s/history/%d", c.path, c.versions(t)[0].Version)}
	others := &endpoint.BodyShare{Budget: &h.gateway.Bodies, Caller: &limits.Bodies{}}
	if err := others.Grow(most / 2); err != nil {
		t.Fatal(err)
	}
	others.Arrived()
	for _, path := range paths {
		expectProblem(t, c.get(t, path), api.CodeUnavailable)
	}
	others.Free()
	for _, path := range paths {
		if got := c.get(t, path); got.status != http.StatusOK {
			t.Errorf("%s: answered %d once there is room, want 200", got.request, got.status)
		}
	}
}
