package staged_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/demo/staged"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

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
