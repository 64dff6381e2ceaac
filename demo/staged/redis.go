package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
)

// RedisFailover shows a lock in Redis that is granted twice. The master dies before it has replicated the lease of A; its
// replica, which a Sentinel promotes, knows nothing of it. The outcome is that of [demo.Zombie.Run]. It returns
// [redis.ErrNoProgram] without Redis.
func RedisFailover(ctx context.Context, config demo.Config) error {
	return config.Run(ctx, &failover{})
}

// sentinelName is how the Sentinel calls the servers.
const sentinelName = "demo"

// failover has servers of their own for each round.
type failover struct {
	master, replica, sentinel *redis.Process
	replication               *network.Relay // from the replica to the master
	discovery                 *network.Relay // from the gateway to the Sentinel of the round

	leaseA *redisLease
}

// Serve runs the gateway at an address of the Sentinel that stays.
func (f *failover) Serve(ctx context.Context, print func(demo.Event)) (flags []string, err error) {
	print(demo.Event{Event: "servers", Text: "the leases are kept in Redis: a master, its replica and a Sentinel"})
	if err := f.startServers(ctx); err != nil {
		return nil, err
	}
	if f.discovery, err = network.NewRelay(ctx, "tcp", f.sentinel.Address()); err != nil {
		return nil, err
	}
	url := fmt.Sprintf("redis://%s?master_name=%s", f.discovery.Address(), sentinelName)
	return []string{"--leases", "redis", "--redis-url", url}, nil
}

func (f *failover) startServers(ctx context.Context) (err error) {
	f.master, err = redis.Run(ctx, redis.Config{})
	if err != nil {
		return err
	}
	if f.replication, err = network.NewRelay(ctx, "tcp", f.master.Address()); err != nil {
		return err
	}
	replicaOf := "replicaof " + strings.ReplaceAll(f.replication.Address(), ":", " ")
	f.replica, err = redis.Run(ctx, redis.Config{Settings: []string{replicaOf}})
	if err != nil {
		return err
	}
	if err := untilInfo(ctx, f.replica, "replication", "master_link_status:up"); err != nil {
		return err
	}
	f.sentinel, err = redis.Run(ctx, redis.Config{Sentinel: true, Settings: []string{
		fmt.Sprintf("sentinel monitor %s %s %s 1", sentinelName, f.master.Host, f.master.Port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 500", sentinelName),
	}})
	if err != nil {
		return err
	}
	return untilInfo(ctx, f.sentinel, "sentinel", "status=ok,address="+f.master.Address()+",slaves=1")
}

func untilInfo(ctx context.Context, server *redis.Process, section, text string) error {
	return until(ctx, text, func(ctx context.Context) (bool, error) {
		info, err := server.Do(ctx, "INFO", section)
		return strings.Contains(info, text), err
	})
}

func (f *failover) Prepare(ctx context.Context, r *demo.Round) error {
	r.A.TTL, r.B.TTL, r.A.Told = redisTTL, redisTTL, true
	if f.master == nil {
		if err := f.startServers(ctx); err != nil {
			return err
		}
		f.discovery.PointAt(f.sentinel.Address())
	}
	f.replication.Hold()
	r.Tell("", demo.Event{Event: "cut", Text: "the network between the Redis master and its replica stalls"})
	return nil
}

// Strike kills the master, and waits until the replica is promoted.
func (f *failover) Strike(ctx context.Context, r *demo.Round) (err error) {
	if f.leaseA, err = lookAt(ctx, r, "the master", f.master); err != nil {
		return err
	}
	f.replication.Cut()
	f.master.Kill()
	r.Tell("", demo.Event{Event: "killed", Text: "the master is killed (SIGKILL) before it has replicated that"})
	if err := untilInfo(ctx, f.sentinel, "sentinel", "status=ok,address="+f.replica.Address()); err != nil {
		return err
	}
	r.Tell("", demo.Event{Event: "promoted", Text: "the Sentinel has promoted the replica"})
	_, err = lookAt(ctx, r, "the new master", f.replica)
	return err
}

func (f *failover) Taken(ctx context.Context, r *demo.Round) error {
	leaseB, err := lookAt(ctx, r, "the new master", f.replica)
	if err != nil {
		return err
	}
	return checkOverlap(r, f.leaseA, leaseB)
}

func (f *failover) Heal(_ context.Context, r *demo.Round) error {
	f.stopServers()
	return r.ReleaseA()
}

func (f *failover) stopServers() {
	for _, server := range []**redis.Process{&f.sentinel, &f.replica, &f.master} {
		if *server != nil {
			(*server).Close()
			*server = nil
		}
	}
	if f.replication != nil {
		f.replication.Close()
		f.replication = nil
	}
}

func (f *failover) Stop() {
	f.stopServers()
	if f.discovery != nil {
		f.discovery.Close()
	}
}

// redisTTL is long beside the time that B needs to be granted the lock: both leases run then.
const redisTTL = 20 * time.Second

// errTooSlow says that the lease of A had ended before two leases could be shown.
var errTooSlow = errors.New("the machine is too slow: the first lease had expired when the second one was granted; run it again")

// redisLease is what a server has at the key of a lock.
type redisLease struct {
	Owner string `json:"owner_id"`
	Token int64  `json:"fencing_token"`
	// expiresAt is by the clock of this process.
	expiresAt time.Time
}

// lookAt returns the lease that a server has, and prints it; nil: the server has none.
func lookAt(ctx context.Context, r *demo.Round, name string, server *redis.Process) (*redisLease, error) {
	value, err := server.Do(ctx, "GET", r.Lock)
	if err != nil {
		return nil, err
	}
	left, err := server.Do(ctx, "PTTL", r.Lock)
	if err != nil {
		return nil, err
	}
	ms, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return nil, err
	}
	if value == "" || ms <= 0 {
		r.Tell("", demo.Event{Event: "server", Text: name + " has no lease of " + r.Lock})
		return nil, nil
	}
	lease := redisLease{expiresAt: time.Now().Add(time.Duration(ms) * time.Millisecond)}
	if err := json.Unmarshal([]byte(value), &lease); err != nil {
		return nil, err
	}
	r.Tell("", demo.Event{Event: "server", Value: lease.Owner, Token: lease.Token, ExpiresAt: &lease.expiresAt, Text: fmt.Sprintf(
		"%s has the lease of %s, token %d, until %s", name, lease.Owner, lease.Token, demo.Clock(lease.expiresAt))})
	return &lease, nil
}

// checkOverlap prints that the leases of A and B run at the same time.
func checkOverlap(r *demo.Round, a, b *redisLease) error {
	now := time.Now()
	switch {
	case a == nil || a.Owner != r.A.Name || b == nil || b.Owner != r.B.Name:
		return fmt.Errorf("%w: the lock was not granted twice", demo.ErrUnexpected)
	case !now.Before(a.expiresAt) || !now.Before(b.expiresAt):
		return errTooSlow
	}
	r.Tell("", demo.Event{Event: "overlap", Text: fmt.Sprintf("TWO HOLDERS: by Redis the lease of %s runs until %s, that of %s "+
		"until %s, and it is %s", a.Owner, demo.Clock(a.expiresAt), b.Owner, demo.Clock(b.expiresAt), demo.Clock(now))})
	return nil
}

// until polls a condition.
func until(ctx context.Context, what string, holds func(ctx context.Context) (bool, error)) error {
	for {
		held, err := holds(ctx)
		if held {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: %w", what, ctx.Err()), err)
		}
	}
}
