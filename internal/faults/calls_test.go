//go:build unix

package faults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// mustAcquire takes a lock, for the default TTL if ttlMS is 0.
func mustAcquire(t *testing.T, g *gateway, lock, owner string, ttlMS int64) api.Lease {
	t.Helper()
	request := api.AcquireRequest{OwnerID: owner}
	if ttlMS > 0 {
		request.TTLMS = &ttlMS
	}
	lease, err := g.Acquire(patient(t), lock, request)
	check(t, err)
	return lease
}

func mustRelease(t *testing.T, g *gateway, lease api.Lease) {
	t.Helper()
	request := api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	check(t, g.Release(patient(t), lease.Lock, request))
}

// numbered is a put under a lease, of a record of its own.
func numbered(lease api.Lease, sequence int64) write {
	number := fmt.Sprintf("%d.%d", lease.FencingToken, sequence)
	return write{
		resource: lease.Lock, key: "w/" + number, token: lease.FencingToken, sequence: sequence,
		value: byPut + number + " by " + lease.OwnerID + `"`,
	}
}

type answer struct {
	result api.WriteResult
	err    error
}

// goPut sends a write and does not wait for the answer.
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

func mustPut(t *testing.T, g *gateway, w write) api.WriteResult {
	t.Helper()
	got := <-goPut(t, g, w)
	check(t, got.err)
	return got.result
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

// wantStale expects that a write was shut out because a newer token was granted.
func wantStale(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, lockclient.ErrTokenStale) || problemOf(t, err).Reason != "superseded" {
		t.Fatalf("it was not superseded, but: %v", err)
	}
}

// wantWrites expects so many records of a resource, and that the fence has counted as many writes.
func wantWrites(t *testing.T, db *pgxpool.Pool, resource string, want int) {
	t.Helper()
	records := ask[int](t, db, "select count(*) from fence.records where resource = $1", resource)
	counted := ask[int](t, db, "select last_version from fence.fences where resource = $1", resource)
	if records != want || counted != want {
		t.Errorf("there are %d records, and %d writes were counted, of %s; want %d", records, counted, resource, want)
	}
}
