package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/gateway/api"
)

// recordSlowly records in transactions that stay open for a while, so that changes become visible out of order.
func recordSlowly(t *testing.T, url string, writer int, end <-chan struct{}) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	const record = `select count(*) from fence.record_rejections(array[$1], array['k'], array['token_unknown'], array[''],
		array['http'], array[''], array[7::bigint], array[null::bigint], array[0::bigint], array[0::bigint], array[0::bigint],
		array[1::bigint], array[clock_timestamp()], array[clock_timestamp()])`
	for {
		hold := rand.N(100 * time.Millisecond)
		if rand.IntN(4) == 0 {
			hold = rand.N(2 * time.Second)
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			group := fmt.Sprintf("group/%d", writer/2*5+rand.IntN(5)) // two writers change the same groups
			if rand.IntN(2) == 0 {
				group = fmt.Sprintf("once/%d/%d", writer, rand.Int64()) // no later change makes up for its loss
			}
			if _, err := tx.Exec(ctx, record, group); err != nil {
				return err
			}
			time.Sleep(hold)
			return nil
		})
		var failed *pgconn.PgError
		if err != nil && (!errors.As(err, &failed) || failed.Code != "57014") { // waited too long for the other writer
			t.Error(err)
			return
		}
		select {
		case <-end:
			return
		default:
		}
	}
}

// groupState is the state of a rejection group in the database.
type groupState struct {
	count     int64
	changedAt time.Time
}

func (h *harness) groupStates(t *testing.T) map[int64]groupState {
	states := map[int64]groupState{}
	rows, err := h.db.Query(context.Background(), "select id, count, changed_at from fence.rejections")
	if err != nil {
		t.Error(err)
		return states
	}
	var id int64
	var state groupState
	_, err = pgx.ForEachRow(rows, []any{&id, &state.count, &state.changedAt}, func() error {
		states[id] = state
		return nil
	})
	if err = errors.Join(err, rows.Err()); err != nil {
		t.Error(err)
	}
	return states
}

// received has the highest count of each group that a client received.
type received map[int64]int64

func (r received) add(t *testing.T, event streamEvent) {
	group := dataOf[api.Rejection](t, event)
	r[group.ID] = max(r[group.ID], group.Count)
}

// missing returns the groups that changed after a time and were not received as they are now.
func (r received) missing(states map[int64]groupState, since time.Time) (groups []int64) {
	for id, state := range states {
		if state.changedAt.After(since) && r[id] != state.count {
			groups = append(groups, id)
		}
	}
	return groups
}

// follow reads groups until it has the final state of each that changed in the last second or later. It stays on one
// connection, or leaves each after a while and resumes at the next gateway.
func follow(t *testing.T, gateways []*harness, leaves bool, final <-chan map[int64]groupState) {
	since := time.Now().Add(-time.Second)
	lastID := strconv.FormatInt(since.UnixMicro(), 10)
	var states map[int64]groupState
	got, deadline := received{}, time.After(2*time.Minute)
	done := func() bool { return states != nil && len(got.missing(states, since)) == 0 }
	for connections := 0; !done(); connections++ {
		s := gateways[connections%len(gateways)].open(t, streamPath, "Last-Event-ID: "+lastID)
		var leaving <-chan time.Time
		left := math.MaxInt
		if leaves {
			leaving, left = time.After(rand.N(400*time.Millisecond)), rand.IntN(1000) // fewer events are sent again
		}
		for ; left >= 0 && !done(); left-- {
			select {
			case event := <-s.events:
				if event.kind != api.EventRejection || event.id < lastID {
					t.Errorf("after the ID %s the event is %+v, want a rejection with a greater ID", lastID, event)
					return
				}
				lastID = event.id
				got.add(t, event)
			case states = <-final:
				final = nil // the other elements are for the other readers
			case <-leaving:
				left = 0
			case <-deadline:
				t.Errorf("after %d connections the groups %v were not received", connections, got.missing(states, since))
				return
			}
		}
		s.close()
	}
}

// Clients that reconnect to other gateways, and clients that stay, receive every group in its final state, whatever the
// order in which changes become visible.
func TestRejectionStreamLosesNothing(t *testing.T) {
	h := newHarness(t, Config{})
	gateways := []*harness{h, h.another(t, Config{})}
	for _, gateway := range gateways {
		gateway.gateway.rejections.Feed.Interval = 20 * time.Millisecond
	}
	const stayers, load = 20, 10 * time.Second
	end, final := make(chan struct{}), make(chan map[int64]groupState, stayers+1)
	var writers, staying sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() { recordSlowly(t, h.databaseURL, writer, end) })
	}
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		for i := range stayers {
			staying.Go(func() { follow(t, gateways[i%2:][:1], false, final) })
			time.Sleep(load / stayers)
		}
		close(end)
		writers.Wait()
		states := h.groupStates(t)
		if len(states) < 50 {
			t.Errorf("the load made only %d groups, want at least 50", len(states))
		}
		for range stayers + 1 {
			final <- states
		}
	}()
	follow(t, gateways, true, final)
	<-loaded
	staying.Wait()
}
