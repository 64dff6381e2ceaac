//go:build unix

package faults

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// P7: the dead need not be swept away. The gateway that granted is killed, and the one that is left does not sweep.
func TestDeadHoldersLockIsGrantable(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 2, "--sweep-interval", "1h")
	for i := range 5 {
		lock := fmt.Sprintf("job/%d", i)
		first := mustAcquire(t, f.at(0), lock, "dead", 100)
		if i == 4 {
			f.at(0).Kill()
		}
		awaitExpiry(t, db, lock)
		if second := mustAcquire(t, f.at(1), lock, "heir", 0); second.FencingToken <= first.FencingToken {
			t.Errorf("token %d was granted after %d", second.FencingToken, first.FencingToken)
		}
	}
}

// Gateways die with many writes of many clients in one commit.
func TestGatewaysKilledUnderACrowd(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	f := startFleet(t, url, 2)
	l := startClients(t, f, crowdClients, crowdLocks)
	l.rounds(t, 2, func(round int) {
		l.progress(t, crowdClients)
		f.crash(t, round)
	})
	l.end(t)
	l.verify(t, connect(t, url))
}

// The zombie is a gateway: it has received a write, and is frozen until the lease has expired and another gateway has
// granted the lock again. From then on the write is rejected, whether or not the new holder has written.
func TestFrozenGatewayComesTooLate(t *testing.T) {
	t.Parallel()
	for _, heirWrites := range []bool{false, true} {
		t.Run(fmt.Sprintf("the heir has written %t", heirWrites), func(t *testing.T) {
			t.Parallel()
			db, f := startMigrated(t, 2)
			lease := mustAcquire(t, f.at(0), "job", "zombie", 100)
			finish, status := beginPut(t, f.at(0), numbered(lease, 1))
			f.at(0).Freeze(t)
			finish()
			awaitExpiry(t, db, "job")
			heir := mustAcquire(t, f.at(1), "job", "heir", 0)
			writes := 0
			if heirWrites {
				mustPut(t, f.at(1), numbered(heir, 1))
				writes = 1
			}
			f.at(0).Thaw(t)

			code, problem := status()
			if code != http.StatusPreconditionFailed || problem.Code != api.CodeTokenStale || problem.Reason != "superseded" {
				t.Errorf("the frozen write was answered %d %+v", code, problem)
			}
			wantWrites(t, db, "job", writes)
			mustPut(t, f.at(1), numbered(heir, 2))
		})
	}
}

// beginPut sends all of a write but its last byte, which finish sends; status waits for the answer. The gateway works
// on the request when it returns.
func beginPut(t *testing.T, g *gateway, w spec.Op) (finish func(), status func() (int, api.Problem)) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(patient(t), "tcp", strings.TrimPrefix(g.URL, "http://"))
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(await.Limit)))
	body := w.Value
	_, err = fmt.Fprintf(conn, "PUT /v1/resources/%s/records/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\n"+
		"Fencing-Token: %d.%d\r\nContent-Length: %d\r\n\r\n%s", w.Name, w.Key, w.Token, *w.Sequence, len(body),
		body[:len(body)-1])
	check(t, err)
	await.True(t, "the gateway works on the write", func() bool { return inFlight(t, g) == 2 })

	finish = func() {
		t.Helper()
		_, err := io.WriteString(conn, body[len(body)-1:])
		check(t, err)
	}
	status = func() (code int, problem api.Problem) {
		t.Helper()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check(t, err)
		defer response.Body.Close()
		check(t, json.NewDecoder(response.Body).Decode(&problem))
		return response.StatusCode, problem
	}
	return finish, status
}

// inFlight is how many requests the gateway works on, that for its metrics included.
func inFlight(t *testing.T, g *gateway) (count int) {
	t.Helper()
	_, metrics := get(t, g, "/metrics")
	_, rest, found := strings.Cut(metrics, "\nfencegate_http_requests_in_flight ")
	if !found {
		t.Fatal("there is no such metric")
	}
	_, err := fmt.Sscan(rest, &count)
	check(t, err)
	return count
}

// waitingClients wait for one lock, and give it back as soon as they have it.
type waitingClients struct {
	db      *pgxpool.Pool
	lock    string
	waiting sync.WaitGroup

	mu     sync.Mutex
	served map[string]int64 // the tokens, by owner
	failed map[string]error
}

// wait has so many clients wait at a gateway, one behind the other, and returns once they are in the queue.
func (w *waitingClients) wait(ctx context.Context, t *testing.T, g *gateway, name string, count int) {
	t.Helper()
	for i := range count {
		owner := fmt.Sprintf("%s %d", name, i)
		w.waiting.Go(func() {
			lease, err := g.Acquire(ctx, w.lock, api.AcquireRequest{OwnerID: owner, WaitMS: store.WaitMax.Milliseconds(),
				RequestID: new(rand.Text())})
			if err == nil {
				err = g.Release(ctx, w.lock, api.ReleaseRequest{OwnerID: owner, LeaseID: lease.LeaseID,
					FencingToken: lease.FencingToken})
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if err != nil {
				w.failed[owner] = err
				return
			}
			w.served[owner] = lease.FencingToken
		})
		await.True(t, owner+" waits", func() bool {
			return query[int](t, w.db, "select count(*) from fence.waiters where owner_id = $1", owner) == 1
		})
	}
}

func (w *waitingClients) countServed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.served)
}

// wantServed expects that the clients of this name, and no more, were served, one after the other.
func (w *waitingClients) wantServed(t *testing.T, name string, count int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	last := int64(0)
	for i := range count {
		owner := fmt.Sprintf("%s %d", name, i)
		token, served := w.served[owner]
		if !served || token <= last {
			t.Errorf("%s has token %d, after %d (%v)", owner, token, last, w.failed[owner])
		}
		last = token
	}
}

// wantApart expects that no two leases ran at the same time, and that none runs.
func (w *waitingClients) wantApart(t *testing.T) {
	t.Helper()
	if n := query[int](t, w.db, `
		select count(*) from fence.leases a, fence.leases b
		where a.lock = b.lock and a.fencing_token < b.fencing_token
			and b.granted_at < coalesce(a.ended_at, a.expires_at)`); n != 0 {
		t.Errorf("%d leases ran beside each other", n)
	}
	await.True(t, "grants to clients that are gone are released", func() bool {
		return query[int](t, w.db, "select count(*) from fence.leases where ended_at is null") == 0
	})
}

func newWaitingClients(db *pgxpool.Pool) *waitingClients {
	return &waitingClients{db: db, lock: "job", served: map[string]int64{}, failed: map[string]error{}}
}

// A gateway is frozen while clients wait at it, until it is considered dead. The waiters behind them are served. When
// it continues, its clients are served in turn, except those that have gone meanwhile.
func TestGatewayIsFrozenWithWaiters(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 3)
	w := newWaitingClients(db)
	holder := mustAcquire(t, f.at(1), w.lock, "holder", longTTLMS)
	leaving, leave := context.WithCancel(patient(t))
	defer leave()
	w.wait(leaving, t, f.at(0), "gone", 4)
	w.wait(patient(t), t, f.at(0), "patient", 4)
	w.wait(patient(t), t, f.at(1), "behind", 4)
	f.at(0).Freeze(t)
	leave()
	mustRelease(t, f.at(2), holder)
	await.True(t, "those behind are served", func() bool { return w.countServed() == 4 })
	w.wantServed(t, "behind", 4)

	holder = mustAcquire(t, f.at(1), w.lock, "holder", longTTLMS)
	w.wait(patient(t), t, f.at(2), "late", 4)
	f.at(0).Thaw(t)
	mustRelease(t, f.at(2), holder)
	w.waiting.Wait()
	w.wantServed(t, "patient", 4)
	w.wantServed(t, "late", 4)
	if n := w.countServed(); n != 12 {
		t.Errorf("%d were served, want the 12 that stayed", n)
	}
	w.wantApart(t)
	await.True(t, "the queue is empty", func() bool {
		return query[int](t, db, "select count(*) from fence.waiters") == 0
	})
}
