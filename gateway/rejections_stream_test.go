package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const streamPath = "/v1/rejections/stream"

func (s *stream) nextRejection(t testing.TB) api.Rejection {
	t.Helper()
	return dataOf[api.Rejection](t, s.next(t, api.EventRejection))
}

// position returns the last ID received. The gateway sends one at once.
func (s *stream) position(t testing.TB) string {
	t.Helper()
	await.True(t, "the stream has sent its position", func() bool { return s.lastID.Load() != nil })
	return s.lastID.Load().(string)
}

// reject records a rejected write with an unknown token.
func (h *harness) reject(t testing.TB, resource string) {
	t.Helper()
	expectProblem(t, h.putWith(t, resource, "Fencing-Token: 7"), api.CodeTokenUnknown)
	h.record(t)
}

// feedEnd returns a channel that is closed when the feed that reads rejections now has ended.
func (h *harness) feedEnd(t testing.TB) <-chan struct{} {
	t.Helper()
	ended := h.gateway.rejections.Feed.Ended()
	if ended == nil {
		t.Fatal("no feed reads rejections")
	}
	return ended
}

// Streams at all gateways receive new and changed groups of all gateways.
func TestRejectionStream(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	h.reject(t, "before")
	zombie, current := h.zombie(t, "job")
	streams := []*stream{h.open(t, streamPath), second.open(t, streamPath), second.open(t, streamPath)}
	expectProblem(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	h.record(t)
	listed := h.rejections(t, "?resource=job").Rejections[0]
	for _, s := range streams {
		event := s.next(t, api.EventRejection)
		r := dataOf[api.Rejection](t, event)
		if encode(r) != encode(listed) || value(r.SupersededBy) != current.FencingToken {
			t.Errorf("the event is %+v, want %+v as in the list", r, listed)
		}
		if at := time.UnixMicro(event.number(t)); time.Since(at).Abs() > time.Hour {
			t.Errorf("the ID of the event stands for %s, want about now", at)
		}
	}
	expectProblem(t, second.put(t, zombie, 6, "late"), api.CodeTokenStale)
	second.record(t)
	for _, s := range streams {
		if r := s.nextRejection(t); r.ID != listed.ID || r.Count != 2 || value(r.Sequence) != int64(6) {
			t.Errorf("the second event is %+v, want the same group with the count 2", r)
		}
	}
}

// A stream has only the groups that its filters select.
func TestRejectionStreamFilters(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, _ := h.zombie(t, "job/ä&1")
	streams := map[string]*stream{}
	for _, filter := range []string{
		"resource=" + url.QueryEscape("job/ä&1"), "prefix=job/", "prefix=j&code=token_stale", "owner_id=zombie",
		"code=token_stale&owner_id=zombie",
	} {
		streams[filter] = h.open(t, streamPath+"?"+filter)
	}
	h.reject(t, "other/job")
	h.reject(t, "job")
	expectProblem(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	h.record(t)
	for filter, s := range streams {
		if r := s.nextRejection(t); r.Resource != "job/ä&1" {
			t.Errorf("%s: the first event is %+v, want one of job/ä&1", filter, r)
		}
	}
}

// A stream that is opened again resumes after the last event or position, at any gateway.
func TestRejectionStreamResumes(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	s := h.open(t, streamPath)
	position := s.position(t)
	h.reject(t, "a")
	seen := s.next(t, api.EventRejection).ID
	s.close()
	h.awaitStreams(t, 0)
	h.reject(t, "b")
	for name, again := range map[string]*stream{
		"header":               h.open(t, streamPath+"?resource=b", "Last-Event-ID: "+seen),
		"parameter":            second.open(t, streamPath+"?resource=b&last_event_id="+seen),
		"header and parameter": second.open(t, streamPath+"?resource=b&last_event_id=0", "Last-Event-ID: "+seen),
		"position":             second.open(t, streamPath+"?resource=b", "Last-Event-ID: "+position),
	} {
		if r := again.nextRejection(t); r.Resource != "b" || r.Count != 1 {
			t.Errorf("%s: the event is %+v, want the group of b", name, r)
		}
	}
	whole := second.open(t, streamPath, "Last-Event-ID: "+position)
	if first, then := whole.nextRejection(t), whole.nextRejection(t); first.Resource != "a" || then.Resource != "b" {
		t.Errorf("after the first position the events are %+v and %+v, want a and b", first, then)
	}
	tooOld := strconv.FormatInt(time.Now().Add(-2*store.RejectionsResumable).UnixMicro(), 10)
	for _, id := range []string{"0", tooOld, "9223372036854775807"} {
		missed := h.open(t, streamPath, "Last-Event-ID: "+id).next(t, api.EventMissed)
		at := time.UnixMicro(missed.number(t))
		if time.Since(at).Abs() > time.Hour || dataOf[api.RejectionsMissed](t, missed).Since.IsZero() {
			t.Errorf("after %s the event is %+v, want an ID of about now and since", id, missed)
		}
	}
}

// More groups than a stream can send are reported as missed, at once and after a reconnect.
func TestRejectionStreamMissed(t *testing.T) {
	h := newHarness(t, Config{})
	s, filtered := h.open(t, streamPath), h.open(t, streamPath+"?resource=none")
	position := s.position(t)
	h.rejectGroups(t, store.RejectionsMissedMax+1)
	for _, s := range []*stream{s, filtered} {
		missed := dataOf[api.RejectionsMissed](t, s.next(t, api.EventMissed))
		if at, err := strconv.ParseInt(position, 10, 64); err != nil || missed.Since.After(time.UnixMicro(at)) {
			t.Errorf("missed since %s, want %s or earlier (%v)", missed.Since, position, err)
		}
	}
	h.open(t, streamPath, "Last-Event-ID: "+position).next(t, api.EventMissed)
	// Missed groups are not sent later, but new changes are.
	h.exec(t, "update fence.rejections set changed_at = changed_at - interval '1 minute'")
	h.reject(t, "after")
	for r := (api.Rejection{}); r.Resource != "after"; {
		if event := <-s.events; event.Kind != api.EventMissed {
			r = dataOf[api.Rejection](t, event)
		}
	}
}

// Streams survive a short outage of the database. A longer one ends them. A client that reconnects has lost nothing.
func TestRejectionStreamWithoutDatabase(t *testing.T) {
	h, cluster := newClusterHarness(t, Config{})
	impatient := h.another(t, Config{})
	h.gateway.rejections.Feed.Patience, impatient.gateway.rejections.Feed.Patience = time.Hour, time.Nanosecond
	s, ended := h.open(t, streamPath), impatient.open(t, streamPath)
	h.reject(t, "a")
	s.next(t, api.EventRejection)
	seen := ended.next(t, api.EventRejection).ID

	cluster.Stop()
	h.awaitNoDeadConnection(t)
	ended.endedFor(t, "unavailable")
	for _, headers := range [][]string{nil, {"Last-Event-ID: " + seen}} {
		expectUnavailable(t, impatient.get(t, streamPath, headers...), api.OutcomeNotApplied)
	}
	cluster.Restart()
	h.awaitReady(t)
	h.reject(t, "b")
	if r := s.nextRejection(t); r.Resource != "b" {
		t.Errorf("the open stream received %+v, want the group of b", r)
	}
	impatient.awaitReady(t)
	again := impatient.open(t, streamPath, "Last-Event-ID: "+seen)
	awaitEvent(t, again, api.EventRejection, func(r api.Rejection) bool { return r.Resource == "b" })
	for _, c := range []struct {
		h *harness
		s *stream
	}{{h, s}, {impatient, again}} {
		feedEnded := c.h.feedEnd(t)
		c.s.close()
		<-feedEnded
	}
}

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
				if event.Kind != api.EventRejection || event.ID < lastID {
					t.Errorf("after the ID %s the event is %+v, want a rejection with a greater ID", lastID, event)
					return
				}
				lastID = event.ID
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
