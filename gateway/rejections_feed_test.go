package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/gateway/api"
)

// recordSlowly records in transactions that are held open for a while, so that what has changed first becomes visible last.
func recordSlowly(t *testing.T, url string, writer int, end <-chan struct{}) {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	const record = `select count(*) from fence.record_rejections(array[$1], array['k'], array['token_unknown'], array[''], array['http'], array[''], array[7::bigint],
		array[null::bigint], array[0::bigint], array[0::bigint], array[0::bigint], array[1::bigint], array[clock_timestamp()], array[clock_timestamp()])`
	for {
		hold := time.Duration(rand.Int64N(int64(100 * time.Millisecond)))
		if rand.IntN(4) == 0 {
			hold = time.Duration(rand.Int64N(int64(2 * time.Second)))
		}
		err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			group := fmt.Sprintf("group/%d", writer/2*5+rand.IntN(5)) // two writers tell the same ones
			if rand.IntN(2) == 0 {
				group = fmt.Sprintf("once/%d/%d", writer, rand.Int64()) // no later change makes up for its loss
			}
			if _, err := tx.Exec(context.Background(), record, group); err != nil {
				return err
			}
			time.Sleep(hold) // the load that is tested, and no wait for anything
			return nil
		})
		var refused *pgconn.PgError
		if err != nil && (!errors.As(err, &refused) || refused.Code != "57014") { // it has waited too long for the other one
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

// comeAndGo follows the rejections at one gateway after the other, never for long, until it has been told of all that there is.
func comeAndGo(t *testing.T, gateways []*harness, seen func(api.Rejection), all func() bool) {
	lastID, sessions := "", 0
	for deadline := time.Now().Add(2 * time.Minute); !all(); sessions++ {
		if time.Now().After(deadline) {
			t.Errorf("after %d connections something was never told", sessions)
			return
		}
		var headers []string
		if lastID != "" {
			headers = append(headers, "Last-Event-ID: "+lastID)
		}
		s := gateways[sessions%len(gateways)].open(t, streamPath, headers...)
		leaving := time.After(time.Duration(rand.Int64N(int64(400 * time.Millisecond))))
		for told := rand.IntN(1000); told >= 0; told-- { // what is told again is fewer
			select {
			case event := <-s.events:
				if event.kind != api.EventRejection || event.id < lastID {
					t.Errorf("after %s there came %+v", lastID, event)
					return
				}
				lastID = event.id
				seen(dataOf[api.Rejection](t, event))
			case <-leaving:
				told = 0
			}
		}
		if lastID == "" {
			lastID = s.position(t)
		}
		s.close()
	}
}

// standing is how a group stands.
type standing struct {
	count     int64
	changedAt time.Time
}

func (h *harness) standings(t *testing.T) map[int64]standing {
	stands := map[int64]standing{}
	rows, err := h.db.Query(context.Background(), "select id, count, changed_at from fence.rejections")
	if err != nil {
		t.Error(err)
		return stands
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var one standing
		if err := rows.Scan(&id, &one.count, &one.changedAt); err != nil {
			t.Error(err)
		}
		stands[id] = one
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return stands
}

// stay goes on from a moment ago, and is told all that has changed since then without coming again.
func stay(t *testing.T, h *harness, ended <-chan map[int64]standing) {
	since := time.Now().Add(-time.Second)
	s := h.open(t, streamPath, fmt.Sprintf("Last-Event-ID: %d", since.UnixMicro()))
	told := map[int64]int64{}
	var missing map[int64]standing // nil: not known yet
	for deadline := time.After(2 * time.Minute); missing == nil || len(missing) > 0; {
		select {
		case event := <-s.events:
			if event.kind != api.EventRejection {
				t.Errorf("there came %+v", event)
				return
			}
			r := dataOf[api.Rejection](t, event)
			told[r.ID] = max(told[r.ID], r.Count)
			if missing[r.ID].count == r.Count {
				delete(missing, r.ID)
			}
		case stands := <-ended:
			ended = nil // the others are for the other readers
			missing = map[int64]standing{}
			for id, stood := range stands {
				if stood.changedAt.After(since) && told[id] != stood.count {
					missing[id] = stood
				}
			}
		case <-deadline:
			t.Errorf("since %s was not told %v", since, missing)
			return
		}
	}
}

// Whoever comes and goes, from gateway to gateway, and whoever comes and stays, is told every group as it stands in the end, whatever the
// order in which the changes became visible.
func TestRejectionStreamLosesNothing(t *testing.T) {
	h := newHarness(t, Config{})
	gateways := []*harness{h, h.another(t, Config{})}
	for _, gateway := range gateways {
		gateway.gateway.rejected.interval = 20 * time.Millisecond
	}
	const stayers = 20
	end, ended := make(chan struct{}), make(chan map[int64]standing, stayers+1)
	var writers, staying sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() { recordSlowly(t, h.databaseURL, writer, end) })
	}
	go func() {
		for i := range stayers {
			staying.Go(func() { stay(t, gateways[i%2], ended) })
			time.Sleep(10 * time.Second / stayers) // of load
		}
		close(end)
		writers.Wait()
		for range stayers + 1 {
			ended <- h.standings(t)
		}
	}()

	told := map[int64]int64{}
	var stands map[int64]standing
	seen := func(r api.Rejection) { told[r.ID] = max(told[r.ID], r.Count) }
	comeAndGo(t, gateways, seen, func() bool {
		if stands == nil {
			select {
			case stands = <-ended:
			default:
			}
		}
		for id, stood := range stands {
			if told[id] != stood.count {
				return false
			}
		}
		return stands != nil
	})
	staying.Wait()
	if len(stands) < 50 {
		t.Errorf("there are only %d groups: it tests nothing", len(stands))
	}
	for id, stood := range stands {
		if told[id] != stood.count {
			t.Errorf("of group %d the last that was told has the count %d, it stands at %d", id, told[id], stood.count)
		}
	}
}
