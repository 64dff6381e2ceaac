package redislease_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// TestForeignValues checks that whatever another program keeps at the key holds the lock, at a bounded cost, and that
// nothing but a break deletes it.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	const bytes, ms = 1 << 20, 253402300799999 // until after the year 9999
	server := redis.Start(t)
	leases := open(t, openDB(t), redislease.Config{}, server)
	sent := func() int {
		_, rest, _ := strings.Cut(server.Do("INFO", "stats"), "total_net_output_bytes:")
		text, _, _ := strings.Cut(rest, "\r\n")
		n, _ := strconv.Atoi(text)
		return n
	}
	before := sent()
	for i, value := range []string{
		"", "1", "[]", "kCtDZ9VbnYw=", `{"fencegate":1}`, `{"fencegate":1,"fencing_token":"x"}`,
		`{"fencegate":1,"owner_id":"A","lease_id":"?"}`, `{"fencegate":1,"owner_id":5}`, strings.Repeat("[", 10000),
		strings.Repeat("x", bytes), `{"fencegate":1,"owner_id":"` + strings.Repeat("x", bytes) + `"}`,
	} {
		lock := fmt.Sprint("foreign/", i)
		server.Do("SET", lock, value, "PX", fmt.Sprint(ms))
		_, err := leases.Acquire(await.Context(t), request(lock, "A"))
		var found *store.HeldError
		if !errors.As(err, &found) || found.OwnerID != "(not fencegate)" || found.Remaining < time.Hour {
			t.Errorf("%.40q: %v, want it held by another program for long", value, err)
		}
		ref := store.LeaseRef{Lock: store.Name(lock), OwnerID: "A", ID: store.NewLeaseID(store.ProviderRedis), Token: 1}
		_, err = leases.Renew(await.Context(t), ref, 0)
		fails(t, "a renewal", err, store.ErrNotFound)
		if n := server.Do("STRLEN", lock); n != fmt.Sprint(len(value)) {
			t.Errorf("%.40q: %s bytes are left", value, n)
		}
	}
	if n := sent() - before; n > bytes {
		t.Errorf("the server sent %d bytes", n)
	}
}

// TestMinorityOfAnotherProgram checks that an acquire does not wait again and again for a server that does not answer,
// where nobody has a majority.
func TestMinorityOfAnotherProgram(t *testing.T) {
	t.Parallel()
	servers := startVoting(t, 3)
	leases := open(t, openDB(t), redislease.Config{Timeout: time.Second}, servers...)
	servers[0].Do("SET", "lock", "another program's", "PX", "600000")
	servers[2].Freeze()
	defer servers[2].Thaw()
	_, err := leases.Acquire(await.Context(t), request("lock", "A"))
	held := errors.Is(err, store.ErrLeaseHeld)
	if failed := leases.Stats()[2].Errors[redislease.KindTimeout]; !held || failed > 6 {
		t.Errorf("%v, after %d calls of the server that does not answer", err, failed)
	}
}
