package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestClaimedJobsAreDoneOnce checks that a worker that wakes late completes no job that another has done, and that it
// does without the fence. What it leaves behind does not disturb the next run.
func TestClaimedJobsAreDoneOnce(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	for range 2 {
		var out bytes.Buffer
		err := demo.Claim(t.Context(), config(t, url, &out))
		events := readEvents(t, &out)
		check(t, err)
		for variant, last := range map[string]string{"fenced": "A rejectedtoken_stale", "unfenced": "A written"} {
			var got []string
			for _, event := range events {
				if event.Variant == variant && event.Actor == "A" {
					got = append(got, event.Actor+" "+event.Event+event.Code)
				}
			}
			if want := []string{"A granted", "A working", "A frozen", "A thawed", last, last}; !slices.Equal(got, want) {
				t.Errorf("%s: the events of A are %q, want %q", variant, got, want)
			}
		}
		const once, twice = "B; B; B; B", "B, then by A; B, then by A; B; B"
		result := events[len(events)-1]
		if result.OK == nil || !*result.OK || result.Fenced != once || result.Unfenced != twice {
			t.Errorf("the result is %+v, want %q with the fence and %q without", result, once, twice)
		}
	}
}

// TestClaimReportsABrokenFence checks that the demo reports a fence that admits every token.
func TestClaimReportsABrokenFence(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	postgres.BreakRule(t, url)
	var out bytes.Buffer
	if err := demo.Claim(t.Context(), config(t, url, &out)); !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("with a fence that admits every token the demo returned %v, want ErrUnexpected", err)
	}
}

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func TestZombieIsRejected(t *testing.T) {
	t.Parallel()
	events, err := runZombie(t, postgres.Empty(t))
	check(t, err)
	rejected := find(t, events, "fenced", "A", "rejected")
	if rejected.Code != "token_stale" || rejected.Token != 1 || rejected.GrantedToken != 2 {
		t.Errorf("A's write was rejected with %s, token %d, newest %d; want token_stale, 1, 2", rejected.Code,
			rejected.Token, rejected.GrantedToken)
	}
	find(t, events, "unfenced", "A", "written")
	result := events[len(events)-1]
	if result.Event != "result" || result.OK == nil || !*result.OK || result.Fenced != "the result of B" ||
		result.Unfenced != "the result of A" {
		t.Errorf("the result is %+v", result)
	}
	checkOrder(t, events)
}

// checkOrder checks that A was frozen between its grant and its write, and that B wrote meanwhile.
func checkOrder(t *testing.T, events []demo.Event) {
	t.Helper()
	unordered := []string{"held", "working", "checked"}
	for _, variant := range []string{"fenced", "unfenced"} {
		var got []string
		for _, event := range events {
			if event.Variant == variant && event.Actor != "" && !slices.Contains(unordered, event.Event) {
				got = append(got, event.Actor+" "+event.Event)
			}
		}
		want := []string{"A granted", "A frozen", "B granted", "B written", "A thawed", "A written"}
		if variant == "fenced" {
			want[5] = "A rejected"
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", variant, got, want)
		}
	}
}

// TestBrokenFence checks that the demo reports a fence that admits every token.
func TestBrokenFence(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	postgres.BreakRule(t, url)
	_, err := runZombie(t, url)
	if !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("with a fence that admits every token the demo returned %v, want ErrUnexpected", err)
	}
}

func runZombie(t *testing.T, url string) ([]demo.Event, error) {
	t.Helper()
	var out bytes.Buffer
	err := demo.Zombie{Config: config(t, url, &out)}.Run(t.Context())
	return readEvents(t, &out), err
}

func config(t *testing.T, url string, out io.Writer) demo.Config {
	t.Helper()
	return demo.Config{Program: process.Build(t), DatabaseURL: url, DatabaseName: "a test's", JSON: true, Out: out}
}

// readEvents reads what a demo printed as JSON.
func readEvents(t *testing.T, from io.Reader) (events []demo.Event) {
	t.Helper()
	for decoder := json.NewDecoder(from); decoder.More(); {
		var event demo.Event
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("the events are not JSON lines: %v", err)
		}
		events = append(events, event)
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLoop runs rounds on two gateways. Each round leaves a rejection that both gateways show.
func TestLoop(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	urls := []string{gateway.Serve(t, url).URL, gateway.Serve(t, url).URL}
	events, err := runLoop(t, urls, 2)
	check(t, err)
	var got []string
	for _, event := range events {
		if event.Event == "rejected" || event.Event == "stored" {
			got = append(got, event.Actor+event.Event+event.Value)
		}
	}
	if want := []string{
		"worker-2rejectedthe result of worker-2", "storedthe result of worker-3",
		"worker-3rejectedthe result of worker-3", "storedthe result of worker-4",
	}; !slices.Equal(got, want) {
		t.Errorf("got the events %q, want %q", got, want)
	}
	for _, url := range urls {
		client, err := lockclient.New(url)
		check(t, err)
		var resources []string
		await.True(t, "two rejections are listed", func() bool {
			rejections, err := admin.New(client).Rejections(t.Context(), admin.RejectionsQuery{Code: api.CodeTokenStale})
			check(t, err)
			resources = nil
			for _, rejection := range rejections.Rejections {
				resources = append(resources, rejection.Resource)
			}
			return len(resources) >= 2
		})
		if want := []string{"demo/job-3", "demo/job-2"}; !slices.Equal(resources, want) {
			t.Errorf("%s shows rejections on %q, want %q", url, resources, want)
		}
		client.Close()
	}
}

// Loop reports a broken fence at once, and does not confuse it with an unreachable gateway.
func TestLoopReportsABrokenFence(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	gateway := gateway.Serve(t, url)
	postgres.BreakRule(t, url)
	if _, err := runLoop(t, []string{gateway.URL}, 0); !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("with a fence that admits every token: %v, want ErrUnexpected", err)
	}
	check(t, gateway.Stop())
	events, err := runLoop(t, []string{gateway.URL}, 2)
	if err == nil || errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("without a gateway: %v", err)
	}
	if !slices.ContainsFunc(events, func(event demo.Event) bool { return event.Event == "failed" }) {
		t.Error("without a gateway, no event \"failed\" was printed for the first round")
	}
}

func runLoop(t *testing.T, urls []string, rounds int) ([]demo.Event, error) {
	t.Helper()
	ctx := await.Context(t)
	var out bytes.Buffer
	err := demo.Zombie{Config: demo.Config{
		Program: process.Build(t), Gateways: urls, Every: time.Second, Rounds: rounds, JSON: true, Out: &out,
	}}.Run(ctx)
	if ctx.Err() != nil {
		t.Fatal("the rounds took too long")
	}
	return readEvents(t, &out), err
}
