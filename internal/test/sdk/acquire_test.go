package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestSubtreeLease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	tree := mustAcquire(t, client, lock, lockclient.Subtree())
	wantErr(t, "Acquire below a subtree", second(client.Acquire(ctx, lock+"/a/b")), lockclient.ErrLockHeld)
	check(t, second(tree.Put(ctx, "k", nil)))
	check(t, second(tree.Put(ctx, "k", nil, lockclient.OnResource(lock+"/a/b"))))
	op := lockclient.PutOp("k", []byte("\x00\xff"), "text/plain")
	op.Resource = lock + "/c"
	check(t, second(tree.Transaction(ctx, op, lockclient.DeleteOp("k"))))
	record, err := client.API().Get(ctx, op.Resource, "k")
	if err != nil || string(record.Value) != "\x00\xff" || record.ContentType != "text/plain" {
		t.Errorf("the record is %+v, %v, expected the bytes of the operation", record, err)
	}
	if _, err := tree.Put(ctx, "k", nil, lockclient.OnResource("elsewhere")); err == nil || tree.Err() != nil {
		t.Errorf("Put elsewhere returned %v, and the lease has %v", err, tree.Err())
	}
}

// Options that exclude each other are refused before anything is sent.
func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	try := func(opts ...lockclient.LeaseOption) error { return second(client.Acquire(ctx, lock, opts...)) }
	for what, err := range map[string]error{
		"a fraction of a millisecond":  try(lockclient.WithTTL(1500 * time.Microsecond)),
		"too short a TTL":              try(lockclient.WithTTL(time.Millisecond)),
		"metadata that is no object":   try(lockclient.WithMetadata("text")),
		"metadata that is no JSON":     try(lockclient.WithMetadata(func() {})),
		"two words on heartbeats":      try(lockclient.WithoutHeartbeat(), lockclient.HeartbeatEvery(time.Second)),
		"a session without heartbeats": second(client.NewSession(ctx, lockclient.WithoutHeartbeat())),
		"a shared session":             second(client.NewSession(ctx, lockclient.Shared())),
		"no lease":                     second(client.Transact(ctx, nil)),
	} {
		wantErr(t, what, err, lockclient.ErrInvalidRequest)
	}
}

// Do releases the lease when work panics or ends its goroutine.
func TestDoReleasesAfterAPanic(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	func() {
		defer func() {
			if got := recover(); got != "oops" {
				t.Errorf("Do panicked with %v, expected oops", got)
			}
		}()
		_ = client.Do(await.Context(t), lock, func(context.Context, *lockclient.Lease) error { panic("oops") })
	}()
	wantFree(t, client, lock)
	var running sync.WaitGroup
	running.Go(func() {
		_ = client.Do(await.Context(t), lock, func(context.Context, *lockclient.Lease) error {
			runtime.Goexit()
			return nil
		})
	})
	running.Wait()
	wantFree(t, client, lock)
}

// Do reports a loss that work has reported as well, once, and says who holds the lock.
func TestDoReportsALossOnce(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	for what, report := range map[string]func(lease *lockclient.Lease, rejected error) error{
		"the rejection wrapped":       func(_ *lockclient.Lease, rejected error) error { return fmt.Errorf("work: %w", rejected) },
		"the rejection after its end": func(_ *lockclient.Lease, rejected error) error { return rejected },
		"the end of its context": func(lease *lockclient.Lease, _ error) error {
			return second(lease.Put(lease.Context(), "k", nil))
		},
	} {
		expires, ttl := what == "the rejection after its end", time.Minute
		if expires {
			ttl = 2 * time.Second
		}
		var newer *lockclient.Lease
		err := client.Do(await.Context(t), lock, func(ctx context.Context, lease *lockclient.Lease) error {
			if expires {
				_ = causeOf(t, "work's context", ctx)
			} else {
				mustBreak(t, client, lock)
			}
			newer = mustAcquire(t, client, lock, lockclient.WithLeaseOwner("newer"), lockclient.WithWait(await.Limit))
			_, rejected := lease.Put(context.WithoutCancel(ctx), "k", nil)
			wantErr(t, "Put", rejected, lockclient.ErrNotHolder)
			return report(lease, rejected)
		}, lockclient.WithTTL(ttl), lockclient.WithoutHeartbeat())
		wantErr(t, "Do after "+what, err, lockclient.ErrNotHolder)
		wantErr(t, "Do after "+what, err, lockclient.ErrLeaseLost)
		wantErr(t, "Do after "+what, err, lockclient.ErrTokenStale)
		loss := lockclient.LossOf(err)
		if !expires && loss.Paused != 0 || loss.Holder == nil || loss.Holder.OwnerID != "newer" ||
			loss.Holder.FencingToken != newer.FencingToken() || loss.Holder.GrantedAt.IsZero() {
			t.Errorf("Do after %s: the loss is %+v, expected the newer holder alone", what, loss)
		}
		for _, once := range []string{"is lost:", "has token", "newer has held the lock since 20"} {
			if n := strings.Count(err.Error(), once); n != 1 {
				t.Errorf("Do after %s says %q %d times, expected once: %v", what, once, n, err)
			}
		}
		check(t, newer.Release(await.Context(t)))
	}
}

// Do holds the lease until work has returned, even if its ctx has ended.
func TestDoEndsWithItsContext(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx, cancel := context.WithCancel(await.Context(t))
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		cancel()
		_ = causeOf(t, "work's context", ctx)
		check(t, lease.Err())
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lockclient.ErrLeaseLost) {
		t.Errorf("Do returned %v, expected context.Canceled alone", err)
	}
	wantFree(t, client, lock)
}

// A client sends the greatest token that it was granted on a name with its next acquire there.
func TestNewestTokenIsSent(t *testing.T) {
	t.Parallel()
	var sent []int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			NewestToken int64 `json:"newest_token"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		sent = append(sent, body.NewestToken)
		token := int64(10 * len(sent))
		answer := api.Lease{Lock: "job", LeaseID: "id", FencingToken: token, TTLMS: 3_600_000}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer gateway.Close()
	client := newClient(t, gateway.URL)
	ctx := await.Context(t)
	for range 2 {
		_, err := client.Acquire(ctx, "job")
		check(t, err)
		_, err = client.Elect(ctx, "leader")
		check(t, err)
	}
	if want := []int64{0, 0, 10, 20}; !slices.Equal(sent, want) {
		t.Errorf("the acquires were sent with the tokens %d, want %d", sent, want)
	}
}
