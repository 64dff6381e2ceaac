package locks

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// Redis as it is named in reports: as it comes, and with every change on disk before it is answered.
const (
	nameRedis      = "redis"
	nameRedisFsync = "redis fsync"
)

// A client that finds the lock taken tries again after a random pause between these.
const (
	pauseMin = time.Millisecond
	pauseMax = 5 * time.Millisecond
)

var errLockLost = errors.New("the key was not the client's any more")

// compareAndDelete deletes the key if it is the client's own.
var compareAndDelete = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`,
)

func startRedis(ctx context.Context, name string) (service, error) {
	var settings []string
	if name == nameRedisFsync {
		settings = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	server, err := peers.StartRedis(ctx, settings...)
	if err != nil {
		return service{}, err
	}
	connect := func(ctx context.Context, _ int) (locker, error) {
		client := server.Connect()
		if err := compareAndDelete.Load(ctx, client).Err(); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return &redisLocker{client}, nil
	}
	return service{name: name, peer: server.Peer, gateways: 1, connect: connect}, nil
}

type redisLocker struct{ client *redis.Client }

func (l *redisLocker) acquire(ctx context.Context, lock string) (func(context.Context) error, error) {
	secret := uuid.NewString()
	for {
		taken, err := l.client.SetNX(ctx, lock, secret, ttl).Result()
		if err != nil {
			return nil, err
		}
		if taken {
			break
		}
		if err := sleep(ctx, pauseMin+rand.N(pauseMax-pauseMin)); err != nil { //nolint:gosec // the pauses are no secret
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		deleted, err := compareAndDelete.Run(ctx, l.client, []string{lock}, secret).Int()
		if err == nil && deleted == 0 {
			err = errLockLost
		}
		return err
	}, nil
}

func (l *redisLocker) close() error { return l.client.Close() }
