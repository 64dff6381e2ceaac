package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
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
