//go:build unix

package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// longTTLMS outlasts every test.
const longTTLMS = int64(time.Hour / time.Millisecond)

// mustAcquire takes a lock, for the default TTL if ttlMS is 0.
func mustAcquire(t *testing.T, g *gateway, lock, owner string, ttlMS int64) api.Lease {
	t.Helper()
	request := api.AcquireRequest{OwnerID: owner}
	if ttlMS > 0 {
		request.TTLMS = &ttlMS
	}
	lease, err := tryAcquire(patient(t), g, lock, request)
	check(t, err)
	return lease
}

// tryAcquire sends an acquire until it is answered.
func tryAcquire(ctx context.Context, g *gateway, lock string, request api.AcquireRequest) (api.Lease, error) {
	request.RequestID = new(rand.Text())
	return insist(ctx, func() (api.Lease, error) { return g.Acquire(ctx, lock, request) })
}

// retryPause leaves the processor to others while a gateway can't serve.
const retryPause = 25 * time.Millisecond

// insist sends the same again while the gateway is unavailable: after the death of a database it finds out for one
// connection after the other.
func insist[T any](ctx context.Context, send func() (T, error)) (T, error) {
	for {
		result, err := send()
		if !errors.Is(err, lockclient.ErrUnavailable) || ctx.Err() != nil {
			return result, err
		}
		time.Sleep(retryPause)
	}
}

func mustRelease(t *testing.T, g *gateway, lease api.Lease) {
	t.Helper()
	request := api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	ctx := patient(t)
	_, err := insist(ctx, func() (struct{}, error) { return struct{}{}, g.Release(ctx, lease.Lock, request) })
	check(t, err)
}

// write is one numbered write, however often it is sent.
type write struct {
	resource, key   string
	token, sequence int64
	value           string
}

// numbered is a put under a lease, of a record of its own.
func numbered(lease api.Lease, sequence int64) write {
	key, value := journal.Put(fmt.Sprintf("%d.%d", lease.FencingToken, sequence), lease.OwnerID)
	return write{resource: lease.Lock, key: key, token: lease.FencingToken, sequence: sequence, value: value}
}

// put sends a write of the tests' own.
func put(ctx context.Context, g *gateway, w write) (api.WriteResult, error) {
	token := api.FencingToken{Token: w.token, Sequence: &w.sequence}
	return journal.Send(ctx, g.API, w.resource, w.key, lockclient.Write{
		Token: token, ContentType: "application/json", Value: []byte(w.value),
	})
}

type answer struct {
	result api.WriteResult
	err    error
}

// goPut sends a write once and does not wait for the answer.
func goPut(t *testing.T, g *gateway, w write) <-chan answer {
	t.Helper()
	ctx := patient(t)
	answers := make(chan answer, 1)
	go func() {
		result, err := put(ctx, g, w)
		answers <- answer{result, err}
	}()
	return answers
}

// tryPut sends a write until its outcome is known.
func tryPut(t *testing.T, g *gateway, w write) (api.WriteResult, error) {
	t.Helper()
	ctx := patient(t)
	return insist(ctx, func() (api.WriteResult, error) { return put(ctx, g, w) })
}

func mustPut(t *testing.T, g *gateway, w write) api.WriteResult {
	t.Helper()
	result, err := tryPut(t, g, w)
	check(t, err)
	return result
}

// problemOf returns what a call was refused with.
func problemOf(t *testing.T, err error) *api.Problem {
	t.Helper()
	var problem *api.Problem
	if !errors.As(err, &problem) {
		t.Fatalf("it is no refusal: %v", err)
	}
	return problem
}

// wantUnanswered expects that the connection was cut, and that the client makes no guess of what happened.
func wantUnanswered(t *testing.T, got answer) {
	t.Helper()
	wantOutcome(t, got.err, api.OutcomeUnknown)
	var failed *lockclient.Error
	if errors.As(got.err, &failed) && failed.Cause == nil {
		t.Fatalf("it was answered: %v", got.err)
	}
}

func wantOutcome(t *testing.T, err error, want api.Outcome) {
	t.Helper()
	if !errors.Is(err, lockclient.ErrUnavailable) || problemOf(t, err).Outcome != want {
		t.Fatalf("it is not unavailable with the outcome %s, but: %v", want, err)
	}
}

// wantStale expects a write to be rejected because a newer token was granted.
func wantStale(t *testing.T, g *gateway, w write) {
	t.Helper()
	_, err := tryPut(t, g, w)
	if !errors.Is(err, lockclient.ErrTokenStale) || problemOf(t, err).Reason != "superseded" {
		t.Fatalf("it was not superseded, but: %v", err)
	}
}

// wantWrites expects so many records of a resource, and that the fence has counted as many writes.
func wantWrites(t *testing.T, db *pgxpool.Pool, resource string, want int) {
	t.Helper()
	records := query[int](t, db, "select count(*) from fence.records where resource = $1", resource)
	counted := query[int](t, db, "select last_version from fence.fences where resource = $1", resource)
	if records != want || counted != want {
		t.Errorf("there are %d records, and %d writes were counted, of %s; want %d", records, counted, resource, want)
	}
}

// wantUnknown expects a write to be rejected because the database has no grant of its token.
func wantUnknown(t *testing.T, g *gateway, w write) {
	t.Helper()
	if _, err := tryPut(t, g, w); !errors.Is(err, lockclient.ErrTokenUnknown) {
		t.Errorf("%s: before the next grant, the lost token %d got %v", w.resource, w.token, err)
	}
}
