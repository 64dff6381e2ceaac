package redislease_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// TestForget checks that a break deletes locks of any program, and nothing else that has the name of a lock.
func TestForget(t *testing.T) {
	t.Parallel()
	server := redis.Start(t)
	leases := open(t, openDB(t), redislease.Config{}, server)
	acquire(t, leases, request("lease", "A"))
	server.Do("SET", "persisted", server.Do("GET", "lease"))
	server.Do("SET", "other program", "kCtDZ9VbnYw=", "PX", "600000")
	server.Do("SET", "text", "a user's")
	server.Do("HSET", "hash", "field", "a user's")
	server.Do("RPUSH", "expiring list", "a user's")
	server.Do("PEXPIRE", "expiring list", "600000")
	for lock, deleted := range map[store.Name]bool{
		"lease": true, "persisted": true, "other program": true, "free": true,
		"text": false, "hash": false, "expiring list": false,
	} {
		err := leases.Forget(await.Context(t), lock, 0)
		if left := server.Do("EXISTS", string(lock)) == "1"; left == deleted {
			t.Errorf("%s: the key is there: %t", lock, left)
		}
		var failure *redislease.Failure
		switch {
		case deleted && err != nil:
			t.Errorf("%s: %v", lock, err)
		case !deleted && (!errors.Is(err, store.ErrUnavailable) || !errors.As(err, &failure) ||
			failure.Kind != redislease.KindWrongType || !strings.Contains(err.Error(), "something else than a lock")):
			t.Errorf("%s: %v, want ErrUnavailable of the kind wrong_type", lock, err)
		}
	}
}
