package redislease_test

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
)

// TestWaiterInPostgres checks a lock whose leases move from Redis to PostgreSQL: a waiter there is granted the lock as soon
// as an acquire in Redis shows that the lease has ended, and that acquire does not overtake it.
func TestWaiterInPostgres(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redis.Start(t)
	inRedis := open(t, db, redislease.Config{LookInterval: time.Hour}, server)
	inPostgres := enginetest.Run(t, db, engine.Config{PollInterval: never})
	acquire(t, inRedis, request("lock", "A"))
	next := make(chan outcome, 1)
	go func() {
		lease, err := inPostgres.Acquire(await.Context(t), waiting("lock", "B"))
		next <- outcome{lease, err}
	}()
	await.True(t, "B waits", func() bool {
		lock, err := db.Lock(t.Context(), "lock")
		return err == nil && lock.QueueLength == 1
	})
	server.Do("DEL", "lock")
	held(t, inRedis, "lock", "")
	if lease := granted(t, "the lock for the waiter in PostgreSQL", next); lease.OwnerID != "B" {
		t.Errorf("granted to %s", lease.OwnerID)
	}
	held(t, inRedis, "lock", "B")
}
