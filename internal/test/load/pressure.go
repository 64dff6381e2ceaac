package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Pressure is a kind of load on one name, beside the checked clients, which never use that name. Comparing the
// latencies of a run with and without it shows what a hot, stuck or abused name costs all others (P13).
type Pressure string

// The kinds of pressure.
const (
	// PressureQueue has Config.Waiters clients wait for one lock. Its holder changes once a second.
	PressureQueue Pressure = "queue"
	// PressureFence keeps one fence locked by a transaction of another database session, a minute at a time, while clients
	// acquire the lock and write to the resource. It needs Config.DatabaseURL.
	PressureFence Pressure = "fence"
	// PressureZombies has clients whose token is superseded write without a pause.
	PressureZombies Pressure = "zombies"
	// PressureSessions opens sessions with 1,000 leases on deep names, and ends them, one session after the other.
	PressureSessions Pressure = "sessions"
)

// Pressures are all kinds, in the order in which they are documented.
var Pressures = []Pressure{PressureQueue, PressureFence, PressureZombies, PressureSessions}

const (
	waitersDefault  = 5000
	waitersMax      = 20_000
	queueHold       = time.Second
	fenceClients    = 64
	fenceLocked     = time.Minute
	zombieClients   = 64
	sessionLeases   = 1000
	sessionClients  = 8 // that acquire the leases of a session side by side
	pressureTTLMS   = 30_000
	pressureWaitMS  = 600_000
	pressureTimeout = 30 * time.Second // of one call, beyond its wait
)

// PressureReport counts what one kind of pressure did.
type PressureReport struct {
	Kind Pressure `json:"kind"`
	// Calls were answered, Refused of them with lock_held, token_stale or lease_lost, Unavailable with unavailable or
	// rate_limited.
	Calls       int64 `json:"calls"`
	Refused     int64 `json:"refused"`
	Unavailable int64 `json:"unavailable"`
}

// pressure is one kind in one run.
type pressure struct {
	run    *run
	config Config
	kind   Pressure
	name   string

	acquires, calls, refused, unavailable atomic.Int64
}

// startPressure starts all configured kinds. They end with ctx; the function returned waits for that.
func (r *run) startPressure(ctx context.Context, config Config, prefix string) (wait func() []PressureReport) {
	var running sync.WaitGroup
	var all []*pressure
	for _, kind := range config.Pressure {
		p := &pressure{run: r, config: config, kind: kind, name: fmt.Sprintf("%s/pressure-%s", prefix, kind)}
		all = append(all, p)
		running.Go(func() { p.work(ctx) })
	}
	return func() (reports []PressureReport) {
		running.Wait()
		for _, p := range all {
			reports = append(reports, PressureReport{p.kind, p.calls.Load(), p.refused.Load(), p.unavailable.Load()})
		}
		return reports
	}
}

func (p *pressure) work(ctx context.Context) {
	switch p.kind {
	case PressureQueue:
		p.many(ctx, p.config.Waiters, p.wait)
	case PressureFence:
		p.lockFence(ctx)
	case PressureZombies:
		p.writeAsZombies(ctx)
	case PressureSessions:
		p.many(ctx, 1, p.useSession)
	}
}

// many repeats work in n goroutines until ctx ends.
func (p *pressure) many(ctx context.Context, n int, work func(ctx context.Context, client int)) {
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			for ctx.Err() == nil {
				work(ctx, i)
			}
		})
	}
	clients.Wait()
}

// call makes one call to one of the gateways, counts its answer, and pauses after one that no gateway served.
func (p *pressure) call(
	ctx context.Context, client int, wait time.Duration, send func(context.Context, *lockclient.API) error,
) error {
	calling, cancel := context.WithTimeout(ctx, wait+pressureTimeout)
	defer cancel()
	gateways := p.config.Gateways
	err := send(calling, gateways[client%len(gateways)])
	if ctx.Err() != nil {
		return err
	}
	p.calls.Add(1)
	switch {
	case err == nil:
	case errors.Is(err, lockclient.ErrLockHeld), errors.Is(err, lockclient.ErrTokenStale),
		errors.Is(err, lockclient.ErrLeaseLost):
		p.refused.Add(1)
	case errors.Is(err, lockclient.ErrUnavailable), errors.Is(err, lockclient.ErrRateLimited):
		p.unavailable.Add(1)
		sleep(ctx, retryPause)
	default:
		p.run.tally.surprise(fmt.Sprintf("pressure %s: %v", p.kind, err))
		sleep(ctx, retryPause)
	}
	return err
}

func (p *pressure) acquire(
	ctx context.Context, client int, name string, request api.AcquireRequest,
) (lease api.Lease, err error) {
	if request.OwnerID == "" {
		// Each acquire has another owner: the earlier, unanswered request of an owner may still wait, and block it.
		request.OwnerID = fmt.Sprintf("%s-%d.%d", p.kind, client, p.acquires.Add(1))
	}
	if request.SessionID == nil {
		ttl := int64(pressureTTLMS)
		request.TTLMS = &ttl
	}
	err = p.call(ctx, client, time.Duration(request.WaitMS)*time.Millisecond,
		func(ctx context.Context, gateway *lockclient.API) error {
			lease, err = gateway.Acquire(ctx, name, request)
			return err
		})
	return lease, err
}

func (p *pressure) release(ctx context.Context, client int, lease api.Lease) {
	_ = p.call(ctx, client, 0, func(ctx context.Context, gateway *lockclient.API) error {
		return gateway.Release(ctx, lease.Lock, api.ReleaseRequest{
			OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
		})
	})
}

// wait queues for the hot lock, holds it for a while, and releases it.
func (p *pressure) wait(ctx context.Context, client int) {
	lease, err := p.acquire(ctx, client, p.name, api.AcquireRequest{WaitMS: pressureWaitMS})
	if err != nil {
		return
	}
	sleep(ctx, queueHold)
	p.release(ctx, client, lease)
}

// put writes one record under the token, and reports whether it was admitted.
func (p *pressure) put(ctx context.Context, client int, token api.FencingToken) bool {
	return p.call(ctx, client, 0, func(ctx context.Context, gateway *lockclient.API) error {
		_, err := gateway.Put(ctx, p.name, "k", lockclient.Write{Token: token, ContentType: "text/plain",
			Value: []byte("pressure")})
		return err
	}) == nil
}

// writeAsZombies has a lease superseded, and then many clients write under its token. None of those writes may be
// admitted.
func (p *pressure) writeAsZombies(ctx context.Context) {
	var old api.Lease
	for ctx.Err() == nil {
		lease, err := p.acquire(ctx, 0, p.name, api.AcquireRequest{})
		if err != nil {
			continue
		}
		p.release(ctx, 0, lease)
		if old.FencingToken != 0 {
			break
		}
		old = lease
	}
	p.many(ctx, zombieClients, func(ctx context.Context, client int) {
		if p.put(ctx, client, api.FencingToken{Token: old.FencingToken}) {
			p.run.violated(spec.Violation{Promise: "P3", Name: store.Name(p.name),
				What: fmt.Sprintf("a write with the superseded token %d was admitted", old.FencingToken)})
		}
	})
}

// useSession takes many leases on deep names in one session, and ends it.
func (p *pressure) useSession(ctx context.Context, client int) {
	var session api.Session
	err := p.call(ctx, client, 0, func(ctx context.Context, gateway *lockclient.API) (err error) {
		ttl := int64(pressureTTLMS)
		session, err = gateway.CreateSession(ctx, api.SessionRequest{OwnerID: "sessions", TTLMS: &ttl})
		return err
	})
	if err != nil {
		return
	}
	var next atomic.Int64
	var acquiring sync.WaitGroup
	for range sessionClients {
		acquiring.Go(func() {
			for i := next.Add(1); i <= sessionLeases && ctx.Err() == nil; i = next.Add(1) {
				_, _ = p.acquire(ctx, int(i), fmt.Sprintf("%s/a%d/b%d/c%d/d/e/f/g", p.name, i, i, i),
					api.AcquireRequest{SessionID: &session.SessionID})
			}
		})
	}
	acquiring.Wait()
	_ = p.call(context.WithoutCancel(ctx), client, 0, func(ctx context.Context, gateway *lockclient.API) error {
		_, err := gateway.EndSession(ctx, session.SessionID)
		return err
	})
}

// lockFence locks the fence of one resource from another database session, again and again, while clients keep
// acquiring its lock and writing to it.
func (p *pressure) lockFence(ctx context.Context) {
	var lease api.Lease
	for err := error(pgx.ErrNoRows); err != nil && ctx.Err() == nil; {
		lease, err = p.acquire(ctx, 0, p.name, api.AcquireRequest{})
	}
	locking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		for locking.Err() == nil {
			if err := p.holdFence(locking); err != nil && locking.Err() == nil {
				p.run.tally.surprise(fmt.Sprintf("the fence of %s could not be kept locked: %v", p.name, err))
				return
			}
		}
	}()
	p.many(locking, fenceClients, func(ctx context.Context, client int) {
		if client%2 == 0 {
			p.put(ctx, client, api.FencingToken{Token: lease.FencingToken})
			return
		}
		_, _ = p.acquire(ctx, client, p.name, api.AcquireRequest{})
	})
}

// holdFence keeps the fence row locked for a minute.
func (p *pressure) holdFence(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.config.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select from fence.fences where resource = $1 for update", p.name); err != nil {
			return err
		}
		sleep(ctx, fenceLocked)
		return nil
	})
}
