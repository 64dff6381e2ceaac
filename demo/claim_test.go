package demo_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
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
