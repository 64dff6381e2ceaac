package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// Where too many writes wait, one more is told that, and not that the database is away.
func TestTooManyWritesWait(t *testing.T) {
	h := newCramped(t, 1)
	var err error
	if h.db, err = pgxpool.New(t.Context(), h.databaseURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.db.Close)
	held, free := h.acquire(t, "held", "w"), h.acquire(t, "free", "w")
	letGo := h.holdFence(t, "held")
	under := inBackground(func() answer { return h.put(t, held, 1, "x") })
	h.awaitWaiting(t, 1)
	behind := inBackground(func() answer { return h.put(t, held, 2, "x") })
	eventually(t, "one waits", func() bool { return h.store.GroupStats().Queued == 1 })
	problem := unavailable(t, h.put(t, free, 1, "x"), api.OutcomeNotApplied)
	if problem.Title != store.ErrOverloaded.Error() || !strings.Contains(problem.Detail, "--write-queue-max") {
		t.Errorf("one too many is told %+v", problem)
	}
	letGo()
	as[api.WriteResult](t, <-under, http.StatusCreated)
	as[api.WriteResult](t, <-behind, http.StatusOK)
}
