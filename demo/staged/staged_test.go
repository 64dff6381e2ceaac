package staged_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/demo/staged"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// TestFailures runs the demos of what goes wrong with leases. In each, A is granted the lock, then B, who writes; A's
// write, which arrives after that, is rejected by the fence and destroys B's value in the plain table.
func TestFailures(t *testing.T) {
	t.Parallel()
	twoHolders := []string{" overlap", "B written", "A checked", "A sent"}
	for _, test := range []struct {
		name string
		run  func(context.Context, demo.Config) error
		// redis says that Redis keeps the leases.
		redis bool
		// strike are events before B is granted the lock, and then are events after that.
		strike, then []string
	}{
		{"partition", staged.Partition, false,
			[]string{"A cut", "A heartbeat_failed", "A lost"}, []string{"B written", "A sent", "A healed"}},
		{"delayed-write", staged.DelayedWrite, false,
			[]string{"A checked", "A sent", "A delayed"}, []string{"B written", " delivered"}},
		{"gc-pause", demo.GCPause, false, nil, []string{"B written", "A resumed"}},
		{"redis-failover", staged.RedisFailover, true, []string{" killed", " promoted"}, twoHolders},
		{"redlock-clock", runRedlockClock, true, []string{" jumped"}, twoHolders},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.redis {
				postgres.Require(t, "redis-server")
			}
			var out bytes.Buffer
			err := test.run(t.Context(), config(t, postgres.Empty(t), &out))
			if errors.Is(err, staged.ErrNoFaketime) {
				process.Missing(t, err.Error())
			}
			events := readEvents(t, &out)
			check(t, err)
			for variant, last := range map[string]string{"fenced": "A rejectedtoken_stale", "unfenced": "A written"} {
				want := slices.Concat([]string{"A granted"}, test.strike, []string{"B granted"}, test.then, []string{last})
				if got := narrated(events, variant, want); !slices.Equal(got, want) {
					t.Errorf("%s: of the events %q, there are %q", variant, want, got)
				}
			}
		})
	}
}

// narrated returns those of the events of a variant that are wanted, in their order.
func narrated(events []demo.Event, variant string, wanted []string) (got []string) {
	for _, event := range events {
		name := event.Actor + " " + event.Event + event.Code
		if event.Variant == variant && slices.Contains(wanted, name) {
			got = append(got, name)
		}
	}
	return got
}

func runRedlockClock(ctx context.Context, config demo.Config) error {
	return staged.RedlockClock{Config: config}.Run(ctx)
}

func TestMissingFaketimeIsNamed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	missing := staged.RedlockClock{Config: config(t, "", &out), Libfaketime: "/no/such/file"}
	if err := missing.Run(t.Context()); !errors.Is(err, staged.ErrNoFaketime) {
		t.Errorf("without libfaketime the demo returned %v, want ErrNoFaketime", err)
	}
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
		check(t, decoder.Decode(&event))
		events = append(events, event)
	}
	return events
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAccess checks what callers are answered before and after their credentials have ended.
func TestAccess(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	url := postgres.Empty(t)
	err := staged.Access(t.Context(), config(t, url, &out))
	events := readEvents(t, &out)
	check(t, err)
	var got []string
	for _, event := range events {
		if event.Actor != "" && event.Actor != "admin" {
			if text := event.Actor + " " + event.Event + event.Code; len(got) == 0 || got[len(got)-1] != text {
				got = append(got, text)
			}
		}
	}
	if want := []string{
		"app accepted", "app refusedforbidden", "app accepted", "app refusedunauthenticated", "app accepted",
		"app refusedunauthenticated",
		"reporter accepted", "reporter refusedforbidden", "nobody refusedunauthenticated",
		"payments accepted", "payments refusedforbidden", "payments refusedunauthenticated", "payments accepted",
		"payments refusedunavailable",
	}; !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
	if result := events[len(events)-1]; result.OK == nil || !*result.OK {
		t.Errorf("the result is %+v", result)
	}
	expectNoLiveKeys(t, url)
}

// TestAccessReportsTooManyRights checks that the demo fails if a key may do more than it was made for.
func TestAccessReportsTooManyRights(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	database, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer database.Close(t.Context())
	_, err = database.Exec(t.Context(), `
		create function public.give_all() returns trigger language plpgsql as
			$$ begin new.grants := array['lock:']; return new; end $$;
		create trigger give_all before insert on fence.keys for each row when (new.principal = 'app')
			execute function public.give_all()`)
	check(t, err)
	if err := staged.Access(t.Context(), config(t, url, &bytes.Buffer{})); !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("a key may lock every name, and the demo returned %v, want ErrUnexpected", err)
	}
	expectNoLiveKeys(t, url)
}

// expectNoLiveKeys checks that the demo leaves no key behind that gateways accept.
func expectNoLiveKeys(t *testing.T, url string) {
	t.Helper()
	database, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer database.Close(t.Context())
	var made, revoked int
	check(t, database.QueryRow(t.Context(), "select count(*), count(revoked_at) from fence.keys").Scan(&made, &revoked))
	if made < 2 || revoked != made {
		t.Errorf("%d keys were made and %d revoked, want all of at least 2", made, revoked)
	}
}
