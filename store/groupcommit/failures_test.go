package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// In a batch of two hundred, each write gets what it would have got alone: the neighbours of what fails in the
// database, and of what the rule rejects, are applied; and behind it on the same resource, too.
func TestGroupNeighbours(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	var writes []store.Write
	for i := range 196 {
		writes = append(writes, g.put(t, enginetest.Numbered("r", i), 1, "fine"))
	}
	bad := g.put(t, "r/7", 2, poison)
	behind := g.put(t, "r/7", 3, "behind")
	stale := g.put(t, "r/8", 1, "stale")
	missing := g.put(t, "r/9", 2, "")
	missing.Operation = store.Operation{Kind: store.Delete, Key: "none"}
	writes = append(writes, bad, behind, stale, missing)
	want := map[int]string{
		196: "22000", 198: store.ErrStaleToken.Error(), 199: store.ErrNotFound.Error(),
	}
	invalid := g.put(t, "r/10", 2, "")
	invalid.Kind = "zap"

	plugged := g.submitPlug(t, "plug")
	answers := g.submitAll(t, writes...)
	if got := verdict(t, g.submit(t.Context(), t, invalid)); !errors.Is(got.err, store.ErrInvalid) {
		t.Errorf("what is invalid returned %+v", got)
	}
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	for i, answer := range answers {
		if want[i] == "" {
			admitted(t, fmt.Sprint("write ", i), answer)
			continue
		}
		got := verdict(t, answer)
		if text := fmt.Sprint(got.err, got.result.Err); !strings.Contains(text, want[i]) ||
			(got.err == nil) == (got.result.Err == nil) {
			t.Errorf("write %d returned %s, want %s", i, text, want[i])
		}
	}
	g.expectStored(t, map[store.Name]string{"r/6": "fine", "r/7": "behind", "r/8": "fine", "r/195": "fine"})
	if stats := g.Stats(); stats.Batches != 2 {
		t.Errorf("it took %+v", stats)
	}
}

// The connection of a batch is ended: nothing is said of what was in it, and what waited behind that is not applied.
// Sent again in its order, each is applied exactly once.
func TestGroupConnectionIsEnded(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx := context.Background()
	writes := []store.Write{
		g.put(t, "p", 1, plug2), g.put(t, "q", 1, "x"), g.put(t, "r", 1, "first"), g.put(t, "r", 2, "second"),
		g.put(t, "r", 3, "third"),
	}
	plugged := g.submitPlug(t, "plug")
	g.hold(t, 2)
	answers := g.submitAll(t, writes[:4]...)
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	g.awaitPlugged(t)
	answers = append(answers, g.submit(ctx, t, writes[4]))
	// A plug sleeps again and again: between two sleeps, the query doesn't find it.
	await.True(t, "its connection is ended", func() bool {
		return g.Count(t, "select count(pg_terminate_backend(pid)) "+pluggedSQL) > 0
	})
	for i, outcome := range []store.Outcome{
		store.OutcomeUnknown, store.OutcomeUnknown, store.OutcomeUnknown, store.OutcomeUnknown, store.OutcomeNotApplied,
	} {
		unavailable(t, fmt.Sprint("write ", i), answers[i], outcome)
	}
	g.expectStored(t, map[store.Name]string{"plug": plug, "p": "nothing", "q": "nothing", "r": "nothing"})
	g.pull(t, 2)
	for i, write := range writes {
		if result := admitted(t, fmt.Sprintf("write %d again", i), g.submit(ctx, t, write)); result.Replayed {
			t.Errorf("write %d was applied before", i)
		}
	}
	g.expectStored(t, map[store.Name]string{"p": plug2, "q": "x", "r": "third"})
}
