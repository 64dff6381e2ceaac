package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/redis"
)

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
func (r *round) lookAt(ctx context.Context, name string, server *redis.Process) (*redisLease, error) {
	value, err := server.Do(ctx, "GET", r.lock)
	if err != nil {
		return nil, err
	}
	left, err := server.Do(ctx, "PTTL", r.lock)
	if err != nil {
		return nil, err
	}
	ms, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return nil, err
	}
	if value == "" || ms <= 0 {
		r.tell("", Event{Event: "server", Text: name + " has no lease of " + r.lock})
		return nil, nil
	}
	lease := redisLease{expiresAt: time.Now().Add(time.Duration(ms) * time.Millisecond)}
	if err := json.Unmarshal([]byte(value), &lease); err != nil {
		return nil, err
	}
	r.tell("", Event{Event: "server", Value: lease.Owner, Token: lease.Token, ExpiresAt: &lease.expiresAt, Text: fmt.Sprintf(
		"%s has the lease of %s, token %d, until %s", name, lease.Owner, lease.Token, clock(lease.expiresAt))})
	return &lease, nil
}

// checkOverlap prints that the leases of A and B run at the same time.
func (r *round) checkOverlap(a, b *redisLease) error {
	now := time.Now()
	switch {
	case a == nil || a.Owner != r.a.Name || b == nil || b.Owner != r.b.Name:
		return fmt.Errorf("%w: the lock was not granted twice", ErrUnexpected)
	case !now.Before(a.expiresAt) || !now.Before(b.expiresAt):
		return errTooSlow
	}
	r.tell("", Event{Event: "overlap", Text: fmt.Sprintf("TWO HOLDERS: by Redis the lease of %s runs until %s, that of %s "+
		"until %s, and it is %s", a.Owner, clock(a.expiresAt), b.Owner, clock(b.expiresAt), clock(now))})
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
