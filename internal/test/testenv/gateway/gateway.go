//go:build unix

package gateway

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
)

// Gateway is a process of fencegate and a client of it.
type Gateway struct {
	*Process
	*lockclient.API
	Transport *http.Transport
}

// Start is StartBroken, and when the test ends, the gateway's log is checked (CheckLog).
func Start(t testing.TB, program string, args ...string) *Gateway {
	t.Helper()
	g := StartBroken(t, program, args...)
	t.Cleanup(func() {
		g.Kill()
		CheckLog(t, g.Log())
	})
	return g
}

// StartBroken runs program with "serve" and args, and may log errors. When the test ends, the gateway is killed if it
// still runs. Leases are remembered for longer than any load lasts. The clients of a load wait for 500 ms for an
// answer: a refusal that is delayed for longer would never reach them, however often they send the write.
func StartBroken(t testing.TB, program string, args ...string) *Gateway {
	t.Helper()
	args = append([]string{"--lease-retention", "24h", "--refusal-delay-max", "100ms"}, args...)
	running, err := Run(await.Context(t), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Kill)
	api, transport := Client(t, running.URL)
	return &Gateway{running, api, transport}
}

// Client returns a client of the gateway at a URL, with connections of its own.
func Client(t testing.TB, url string) (*lockclient.API, *http.Transport) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := lockclient.New(url, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return client.API(), transport
}

// CheckLog fails the test for what no fault outside of the gateway excuses.
func CheckLog(t testing.TB, log string) {
	t.Helper()
	// 40P01 is in the log where a client was answered 503 since its statement was in a deadlock.
	for _, sign := range []string{"DATA RACE", "panic", "level=ERROR", "40P01"} {
		if strings.Contains(log, sign) {
			t.Errorf("the gateway logged %s:\n%s", sign, log[max(0, len(log)-8<<10):])
			return
		}
	}
}

// Freeze stops the gateway, and returns once it is stopped.
func (g *Gateway) Freeze(t testing.TB) {
	t.Helper()
	if err := g.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the gateway is frozen", func() bool { return strings.HasPrefix(process.State(g.PID()), "T") })
}

// Thaw lets the gateway continue.
func (g *Gateway) Thaw(t testing.TB) {
	t.Helper()
	if err := g.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// HasEnded reports whether the process has ended.
func (g *Gateway) HasEnded() bool {
	select {
	case <-g.Ended():
		return true
	default:
		return false
	}
}

// AwaitReady returns when the gateway says that it can serve.
func (g *Gateway) AwaitReady(t testing.TB) {
	t.Helper()
	ctx := await.Context(t)
	await.True(t, "the gateway is ready", func() bool { return g.Ready(ctx) == nil })
}
