package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/watch"
)

// begin begins a transaction beside the engines, which the test leaves open for as long as it wants.
func (s *engines) begin(t *testing.T, options pgx.TxOptions, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := s.SQL.BeginTx(await.Context(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	if _, err := tx.Exec(await.Context(t), sql, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

// expectNext expects the next event of a subscription to be of this kind and owner, after all that were seen.
func expectNext(t *testing.T, w *watch.Subscription, kind store.EventKind, owner string) {
	t.Helper()
	before := w.ID
	event, err := w.Next(await.Context(t))
	if err != nil || event.Kind != kind || event.OwnerID != owner || event.ID <= before {
		t.Fatalf("after the event %d there is %+v (%v), want %s of %q", before, event, err, kind, owner)
	}
}

// A transaction that stays open after it has renewed a lease of a watched lock delays its own event and nothing else: not
// the other events of the lock, the sweep of other leases, or the record of rejections.
func TestOpenTransactionDelaysOnlyItsOwnEvents(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	hot, other := s.watch(t, 0, "hot", nil), s.watch(t, 1, "other", nil)
	open := s.Acquire(t, 0, store.AcquireRequest{Lock: "hot", OwnerID: "open", Mode: store.Shared})
	s.Acquire(t, 0, store.AcquireRequest{Lock: "hot", OwnerID: "late", Mode: store.Shared})
	s.Acquire(t, 0, store.AcquireRequest{Lock: "other", OwnerID: "another"})
	const unwatched = 50
	for i := range unwatched {
		s.Acquire(t, 0, store.AcquireRequest{Lock: enginetest.Numbered("unwatched", i), OwnerID: "owner"})
	}
	expectNext(t, hot, store.EventGranted, "open")
	expectNext(t, hot, store.EventGranted, "late")
	expectNext(t, other, store.EventGranted, "another")

	tx := s.begin(t, pgx.TxOptions{}, "select fence.renew_lease($1, $2, $3, $4, null)",
		open.Lock, open.OwnerID, open.ID, open.Token)
	s.Exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where owner_id <> 'open'")
	swept, err := enginetest.NewSweeper(t, s.Store, postgres.SweeperConfig{}).Sweep(await.Context(t))
	if err != nil || swept.Expired != unwatched+2 {
		t.Errorf("the sweep ended %d leases, want %d (%v)", swept.Expired, unwatched+2, err)
	}
	expectNext(t, other, store.EventExpired, "another")
	expectNext(t, hot, store.EventExpired, "late")

	recorder := postgres.NewRecorder(s.Store)
	recording, stop := context.WithCancel(t.Context())
	var recorded sync.WaitGroup
	defer recorded.Wait()
	defer stop()
	recorded.Go(func() { recorder.Run(recording, func(err error) { t.Log(err) }) })
	const groups = 5500 // twice that is more than a Recorder keeps
	for round := 1; round <= 2; round++ {
		for i := range groups {
			resource := store.Name("hot")
			if i > 0 {
				resource = enginetest.Numbered("rejecting", i)
			}
			recorder.Record(&store.RejectedError{Verdict: store.VerdictTokenStale, Resource: resource, Token: open.Token},
				fmt.Sprint("round ", round), "", "")
		}
		await.True(t, "all rejections are recorded or dropped", func() bool {
			return s.Count(t, "select count(*) from fence.rejections") == round*groups || recorder.Dropped() > 0
		})
	}
	if n := recorder.Dropped(); n != 0 {
		t.Errorf("%d rejections were dropped", n)
	}
	expectNext(t, hot, store.EventRejected, "open")
	expectNext(t, hot, store.EventRejected, "open")

	if err := tx.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	expectNext(t, hot, store.EventRenewed, "open")
}

// publishSQL inserts so many events, with tokens from 1 on.
const publishSQL = `
	select fence.publish_event(row(null, 'lock', 'broken', null, 'w', i, null, null, null, null, null, null, null)::fence.events)
	from generate_series(1, $1) i`

// Events are published beside an old snapshot, which keeps every row that was deleted since, and beside a transaction
// that has written. Finding the next event reads no row of those before.
func TestOldSnapshotDelaysNoEvent(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	w := s.watch(t, 0, "lock", nil)
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "owner"})
	expectNext(t, w, store.EventGranted, "owner")
	s.begin(t, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "select count(*) from fence.unpublished")
	s.begin(t, pgx.TxOptions{}, "select pg_current_xact_id()")
	const rounds, round = 20, 200
	for range rounds {
		s.Exec(t, publishSQL, round)
		s.next(t, w, round)
	}
	s.Exec(t, "analyze fence.unpublished, fence.events")

	var text []byte
	if err := s.SQL.QueryRow(t.Context(), "explain (analyze, buffers, format json) select * from fence.unpublished_events('lock')").
		Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("the plan is %s (%v)", text, err)
	}
	if read := plans[0].Plan.Hit + plans[0].Plan.Read; read > 50 {
		t.Errorf("finding the next event after %d reads %d blocks, want at most 50: %s", rounds*round, read, text)
	}
	s.Release(t, 0, lease)
	expectNext(t, w, store.EventReleased, "owner")
}

// Events that are published in small batches have the order in which they were inserted, and the last batch asks for no
// other.
func TestEventsArePublishedInBatches(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	b.WatchEvents(t, "lock")
	b.Exec(t, publishSQL, 5)
	for _, want := range [][]store.Name{{"lock"}, {"lock"}, {}, {}} {
		var again []store.Name
		if err := b.SQL.QueryRow(t.Context(), "select fence.publish_events(array['lock'], 2)").Scan(&again); err != nil ||
			!slices.Equal(again, want) {
			t.Errorf("publish again: %v (%v), want %v", again, err, want)
		}
	}
	events, err := b.Store.Events(t.Context(), []store.Name{"lock"}, []int64{0}, 10)
	if err != nil || len(events) != 5 {
		t.Fatalf("the events are %+v (%v)", events, err)
	}
	for i, event := range events {
		if event.Token != int64(i+1) || time.Since(event.At) < 0 {
			t.Errorf("event %d is %+v", i+1, event)
		}
	}
}
