//go:build unix

package locks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
)

// nameFencegate is fencegate in reports, followed by the number of gateways if it is not 1: "fencegate x2".
const nameFencegate = "fencegate"

// gateways are processes before one database.
type gateways []*gateway.Process

func (c Config) startGateways(ctx context.Context, count int) (started gateways, err error) {
	for range count {
		process, err := gateway.Run(ctx, c.Program,
			"--database-url", c.DatabaseURL, "--database-connections-max", strconv.Itoa(c.Connections))
		if err != nil {
			return nil, errors.Join(err, started.stop())
		}
		started = append(started, process)
	}
	return started, nil
}

func (g gateways) stop() error {
	var errs []error
	for _, process := range g {
		errs = append(errs, process.Stop())
	}
	return errors.Join(errs...)
}

func (g gateways) pids() []int {
	pids := make([]int, len(g))
	for i, process := range g {
		pids[i] = process.PID()
	}
	return pids
}

// service is so many of the gateways.
func (g gateways) service(count int) service {
	name := nameFencegate
	if count > 1 {
		name = fmt.Sprintf("%s x%d", nameFencegate, count)
	}
	return service{name: name, gateways: count, queues: true,
		connect: func(_ context.Context, client int) (locker, error) {
			return newGatewayLocker(g[client%count].URL, fmt.Sprintf("bench-%d", client), HTTP1)
		}}
}

// gatewayLocker is a client of one gateway, as one owner.
type gatewayLocker struct {
	api       *lockclient.API
	transport *http.Transport
	owner     string
	ttl       time.Duration
}

func newGatewayLocker(url, owner, protocol string) (*gatewayLocker, error) {
	transport := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 1}
	transport.Protocols.SetHTTP1(protocol == HTTP1)
	transport.Protocols.SetUnencryptedHTTP2(protocol == HTTP2)
	client, err := lockclient.New(url, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return nil, fmt.Errorf("the gateway's URL: %w", err)
	}
	return &gatewayLocker{client.API(), transport, owner, ttl}, nil
}

func (l *gatewayLocker) acquire(ctx context.Context, lock string) (func(context.Context) error, error) {
	return l.acquireAs(ctx, lock, l.owner)
}

func (l *gatewayLocker) acquireAs(ctx context.Context, lock, owner string) (func(context.Context) error, error) {
	lease, err := l.holdAs(ctx, lock, owner)
	return lease.release, err
}

func (l *gatewayLocker) holdAs(ctx context.Context, lock, owner string) (held, error) {
	lease, err := l.api.Acquire(ctx, lock, api.AcquireRequest{
		OwnerID: owner, TTLMS: new(l.ttl.Milliseconds()), WaitMS: waitMax.Milliseconds(),
	})
	if err != nil {
		return held{}, err
	}
	return held{
		renew: func(ctx context.Context) error {
			_, err := l.api.Renew(ctx, lock, api.RenewRequest{
				OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
			})
			return err
		},
		release: func(ctx context.Context) error {
			return l.api.Release(ctx, lock, api.ReleaseRequest{
				OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
			})
		},
	}, nil
}

// waiting sends a try, which is rejected with the length of the queue.
func (l *gatewayLocker) waiting(ctx context.Context, lock string) (int, error) {
	_, err := l.api.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "bench-onlooker",
		TTLMS: new((100 * time.Millisecond).Milliseconds())})
	var problem *api.Problem
	switch {
	case err == nil:
		return 0, fmt.Errorf("%s is not held", lock)
	case !errors.Is(err, lockclient.ErrLockHeld):
		return 0, err
	case !errors.As(err, &problem) || problem.QueueLength == nil:
		return 0, fmt.Errorf("no queue_length in %w", err)
	}
	return *problem.QueueLength, nil
}

func (l *gatewayLocker) close() error {
	l.transport.CloseIdleConnections()
	return nil
}
