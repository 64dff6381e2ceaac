package demo_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// TestSQL runs psql zombies. The fenced one is rejected, the one that keeps the fence locked is ended, and the unfenced
// one destroys newer data.
func TestSQL(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	events, err := runSQL(t, url, postgres.Require(t, "psql"))
	check(t, err)
	var got []string
	for _, event := range events {
		if event.Actor != "" || event.Event == "stored" {
			got = append(got, event.Variant+" "+event.Actor+" "+event.Event+event.Code)
		}
	}
	want := []string{}
	for _, variant := range [][]string{
		{"fenced", "rejectedLF103"}, {"unfenced", "written"}, {"bounded", "ended"},
	} {
		for _, step := range []string{
			"A granted", "A begun", "A frozen", "B granted", "B begun", "B written", "A thawed", "A " + variant[1], " stored",
		} {
			want = append(want, variant[0]+" "+step)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
	result := events[len(events)-1]
	if result.OK == nil || !*result.OK || result.Fenced != "the result of B" || result.Unfenced != "the result of A" {
		t.Errorf("the result is %+v", result)
	}
	if _, err := runSQL(t, url, "no-such-program"); !errors.Is(err, demo.ErrNoPsql) {
		t.Errorf("without psql the demo returned %v, want ErrNoPsql", err)
	}
}

func runSQL(t *testing.T, url, psql string) ([]demo.Event, error) {
	t.Helper()
	var out bytes.Buffer
	err := demo.SQL{Config: config(t, url, &out), Psql: psql}.Run(t.Context())
	return readEvents(t, &out), err
}
