//go:build unix

package dashboard

import (
	"os/exec"
	"strconv"
	"testing"
)

// TestPolicyHintWorks runs the command that the page of policies shows where there are none: it sets one, which the page then shows.
func TestPolicyHintWorks(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.open("#/policies")
	p.waitText("main pre", "curl")
	hint := eval[string](p, `document.querySelector("main pre").textContent`)
	if output, err := exec.Command("sh", "-c", hint+" --silent --show-error --fail-with-body").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", hint, err, output)
	}
	p.open("#/")
	p.waitText("main h1", "Overview")
	p.open("#/policies")
	p.waitText("main", "imports")
}

// TestLockPageAgreesWithItself shows that the lock and its fence are drawn from one answer, and that what is left of a short lease is not more than its TTL.
func TestLockPageAgreesWithItself(t *testing.T) {
	g := startGateway(t)
	lease := g.hold(t, "jobs/1", "an-owner")
	g.sql(t, "update fence.leases set ttl_ms = 365, expires_at = clock_timestamp() + interval '10 seconds' where lock = 'jobs/1'")
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/1"))
	p.waitText("main", "token "+strconv.FormatInt(lease.FencingToken, 10)+" alone may write")
	if asked := eval[int](p, `performance.getEntriesByType("resource").filter((entry) => entry.name.endsWith("/fence")).length`); asked != 0 {
		t.Errorf("the fence was asked for %d times by itself", asked)
	}
	if eval[bool](p, `!document.querySelector("main").innerText.includes("<1 s of 365 ms")`) {
		t.Errorf("more is left of the lease than its TTL: %s", eval[string](p, `document.querySelector("main").innerText`))
	}
}
