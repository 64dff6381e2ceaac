package peers

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis is a single Redis server.
type Redis struct{ *Peer }

// StartRedis runs Redis with its own defaults (now and then a snapshot), and settings such as "--appendonly", "yes"
// over them. It returns ErrAbsent where there is none.
func StartRedis(ctx context.Context, settings ...string) (*Redis, error) {
	server, err := command{program: "redis-server", ports: 1, args: func(dir string, ports []int) []string {
		return append([]string{"--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--dir", dir, "--loglevel",
			"warning"}, settings...)
	}, ready: redisVersion}.start(ctx)
	return &Redis{server}, err
}

// Connect makes a client with one connection of its own.
func (r *Redis) Connect() *redis.Client { return connectRedis(r.Address) }

func connectRedis(address string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, PoolSize: 1, MaxRetries: -1, ReadTimeout: startTimeout})
}

func redisVersion(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	// The client writes to standard error while the server does not listen yet.
	connection, err := dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	client := connectRedis(address)
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, found := strings.Cut(rest, "\r\n")
	if !found {
		return "", errors.New("redis has no version")
	}
	return version, nil
}
