package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/demo"
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
