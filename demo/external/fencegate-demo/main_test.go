package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/demo/external"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// TestMain is also the worker: the demo runs its own program for that.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		main()
	}
	os.Exit(postgres.Main(m))
}

// The write of a zombie of each service's lock is rejected by the number of that lock, and stored without the fence.
func TestZombieOfAnotherService(t *testing.T) {
	for service, number := range map[string]string{
		external.NameEtcd: "create revision", external.NameZooKeeper: "czxid", external.NameRedis: "counter",
	} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			events := runDemo(t, service, postgres.Empty(t), 0)
			granted := find(t, events, "fenced", "A", "granted")
			rejected := find(t, events, "fenced", "A", "rejected")
			written := find(t, events, "fenced", "B", "written")
			if rejected.Code != "token_stale" || rejected.Token != granted.Token || rejected.Token >= written.Token ||
				rejected.GrantedToken != written.Token || !strings.Contains(granted.Text, number) {
				t.Errorf("A was granted the %+v, B wrote %+v, and A's write was %+v", granted, written, rejected)
			}
			find(t, events, "unfenced", "A", "written")
			result := events[len(events)-1]
			if result.OK == nil || !*result.OK || result.Fenced != "the result of B" || result.Unfenced != "the result of A" {
				t.Errorf("the result is %+v", result)
			}
		})
	}
}

// A fence that admits every token is reported by the exit code.
func TestBrokenFence(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	postgres.BreakRule(t, url)
	runDemo(t, external.NameRedis, url, 1)
}

// runDemo runs the program and checks its exit code. Without the service, the test is skipped. On CI, it fails for
// those that scripts/test-deps installs: ZooKeeper is none, as it brings Java.
func runDemo(t *testing.T, service, databaseURL string, exitCode int) (events []demo.Event) {
	t.Helper()
	var out, failures bytes.Buffer
	got := run(t.Context(), []string{
		service, "--output", "json", "--database-url", databaseURL, "--fencegate", process.Build(t),
	}, &out, &failures)
	if strings.Contains(failures.String(), "not on this machine") &&
		(os.Getenv("CI") != "true" || service == external.NameZooKeeper) {
		t.Skip(failures.String())
	}
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var event demo.Event
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("the events are not JSON lines: %v", err)
		}
		t.Log(event.Actor, event.Text)
		events = append(events, event)
	}
	if got != exitCode {
		t.Fatalf("the demo exits with %d, want %d: %s", got, exitCode, &failures)
	}
	return events
}

func find(t *testing.T, events []demo.Event, variant, actor, event string) demo.Event {
	t.Helper()
	for _, e := range events {
		if e.Variant == variant && e.Actor == actor && e.Event == event {
			return e
		}
	}
	t.Fatalf("%s: there is no event %s %s", variant, actor, event)
	return demo.Event{}
}
