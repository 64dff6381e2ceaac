//go:build unix

package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/program"
	"github.com/fencegate/fencegate/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestZombieIsRejected(t *testing.T) {
	t.Parallel()
	events, err := runZombie(t, pgtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
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
	for _, variant := range []string{"fenced", "unfenced"} {
		var got []string
		for _, event := range events {
			if event.Variant == variant && event.Actor != "" && event.Event != "held" && event.Event != "working" &&
				event.Event != "checked" {
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
	url := pgtest.Migrated(t)
	breakFence(t, url)
	_, err := runZombie(t, url)
	if !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("with a fence that admits every token the demo returned %v, want ErrUnexpected", err)
	}
}

// breakFence makes fence.rule find nothing stale.
func breakFence(t *testing.T, url string) {
	t.Helper()
	source, ok := migrations.GuardSource("rule")
	if !ok {
		t.Fatal("there is no guard/rule.sql")
	}
	broken := regexp.MustCompile(`'token_stale \w+'`).ReplaceAllString(source, "'admitted'")
	if broken == source {
		t.Fatal("fence.rule has no token_stale to break")
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
}

func runZombie(t *testing.T, url string) ([]demo.Event, error) {
	t.Helper()
	var out bytes.Buffer
	err := demo.Zombie{Program: program.Path(t), DatabaseURL: url, DatabaseName: "a test's", JSON: true,
		Out: &out}.Run(t.Context())
	var events []demo.Event
	decoder := json.NewDecoder(&out)
	for decoder.More() {
		var event demo.Event
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("the events are not JSON lines: %v", err)
		}
		events = append(events, event)
	}
	return events, err
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
