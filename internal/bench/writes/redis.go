package writes

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// checkAndSet is the fence by hand in Redis: a token that is not older than the last one seen, and the value, in one
// hash.
var checkAndSet = redis.NewScript(`
local last = redis.call("hget", KEYS[1], "token")
if last and tonumber(ARGV[1]) < tonumber(last) then return 0 end
redis.call("hset", KEYS[1], "token", ARGV[1], "value", ARGV[2])
return 1`)

// startRedis runs a server with an append-only file that is flushed as fsync says: always, or everysec.
func startRedis(ctx context.Context, name, fsync string) (target, string, error) {
	server, err := peers.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", fsync)
	if err != nil {
		return target{}, "", err
	}
	t := peerTarget(name, server.Peer, 16, 64)
	t.open = func(ctx context.Context, s setting) (session, error) { return openRedis(ctx, server, s) }
	return t, server.Version, nil
}

func openRedis(ctx context.Context, server *peers.Redis, s setting) (session, error) {
	client := redis.NewClient(&redis.Options{Addr: server.Address, PoolSize: s.connections, MaxRetries: -1,
		DisableIdentity: true})
	if err := checkAndSet.Load(ctx, client).Err(); err != nil {
		return session{}, err
	}
	return session{close: client.Close, write: func(ctx context.Context, _ int, w *writer) error {
		r, value := w.next()
		set, err := checkAndSet.EvalSha(ctx, client, []string{string(r.name)}, r.token, value).Int()
		if err == nil && set != 1 {
			err = fmt.Errorf("%w: %s", errFenced, r.name)
		}
		return err
	}}, nil
}
