package external

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/demo"
)

// Redis is a demo.Service by a key that expires, as most Redis locks are. The token is a counter that the script which
// takes the lock increments.
type Redis struct{ client *redis.Client }

// NewRedis returns the service of the Redis at an address.
func NewRedis(address string) *Redis {
	return &Redis{redis.NewClient(&redis.Options{Addr: address})}
}

// takeLock answers with the token, or nil if the lock is held. The braces keep both keys on one node of a cluster.
var takeLock = redis.NewScript(`
	if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
		return redis.call('incr', KEYS[2])
	end
	return false`)

// Acquire tries until the lock is free.
func (r *Redis) Acquire(ctx context.Context, lock string, ttl time.Duration) (demo.Grant, error) {
	keys := []string{"lock:{" + lock + "}", "token:{" + lock + "}"}
	for {
		token, err := takeLock.Run(ctx, r.client, keys, uuid.NewString(), ttl.Milliseconds()).Int64()
		if !errors.Is(err, redis.Nil) {
			return demo.Grant{Token: token, Number: "counter"}, err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return demo.Grant{}, ctx.Err()
		}
	}
}
