package lockclient_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func TestLeases(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	ttl, longer := int64(60_000), int64(120_000)
	lease, err := client.Acquire(ctx, "a", api.AcquireRequest{OwnerID: "w1", TTLMS: &ttl, Metadata: json.RawMessage(`{"pod": "<x>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Lock != "a" || lease.OwnerID != "w1" || lease.TTLMS != ttl || lease.Mode != "exclusive" || string(lease.Metadata) != `{"pod":"<x>"}` {
		t.Errorf("acquire: %+v", lease)
	}
	renewal := api.RenewRequest{OwnerID: "w1", LeaseID: lease.LeaseID, FencingToken: lease.FencingToken, TTLMS: &longer}
	renewed, err := client.Renew(ctx, "a", renewal)
	if err != nil || renewed.LeaseID != lease.LeaseID || renewed.TTLMS != longer || !renewed.ExpiresAt.After(lease.ExpiresAt.Time) {
		t.Errorf("renew: %+v, %v", renewed, err)
	}

	_, err = client.Acquire(ctx, "a", api.AcquireRequest{OwnerID: "w2"})
	problem := wantProblem(t, err, lockclient.ErrLockHeld)
	if problem.Holder == nil || problem.Holder.OwnerID != "w1" || problem.RecommendedRetryMS == nil || !problem.Retryable {
		t.Errorf("held: %+v", problem)
	}
	state, err := client.Lock(ctx, "a")
	if err != nil || state.State != "held" || state.FencingToken != lease.FencingToken || len(state.Holders) != 1 {
		t.Errorf("lock: %+v, %v", state, err)
	}

	release := api.ReleaseRequest{OwnerID: "w1", LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	for range 2 {
		if err := client.Release(ctx, "a", release); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	_, err = client.Renew(ctx, "a", renewal)
	if problem := wantProblem(t, err, lockclient.ErrLeaseLost); problem.Reason != "released" {
		t.Errorf("renew: %+v", problem)
	}
	_, err = client.Break(ctx, "a", api.BreakRequest{Reason: "test"})
	wantRefused(t, err, lockclient.ErrNotFound)
}

func TestAcquireAgainWithTheSameRequestID(t *testing.T) {
	client, ctx, id := newGateway(t).API(), t.Context(), "r1"
	request := api.AcquireRequest{OwnerID: "w1", RequestID: &id}
	first, firstErr := client.Acquire(ctx, "a", request)
	again, againErr := client.Acquire(ctx, "a", request)
	if firstErr != nil || againErr != nil || again.LeaseID != first.LeaseID {
		t.Errorf("got %+v, %v, then %+v, %v", first, firstErr, again, againErr)
	}
	broken, err := client.Break(ctx, "a", api.BreakRequest{Reason: "test"})
	if err != nil || !broken.Broken || broken.OwnerID != "w1" || broken.FencingToken != first.FencingToken {
		t.Errorf("break: %+v, %v", broken, err)
	}
	_, err = client.Acquire(ctx, "a", request)
	if problem := wantProblem(t, err, lockclient.ErrLeaseLost); problem.Reason != "broken" {
		t.Errorf("acquire: %+v", problem)
	}
	err = client.Release(ctx, "a", api.ReleaseRequest{OwnerID: "w1", LeaseID: first.LeaseID, FencingToken: first.FencingToken})
	wantRefused(t, err, lockclient.ErrLeaseLost)
}

func TestLocksByPages(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	acquire(t, client, "other")
	for i := range 5 {
		acquire(t, client, fmt.Sprintf("jobs/%d", i))
	}
	if _, err := client.Break(ctx, "jobs/2", api.BreakRequest{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	query := lockclient.LocksQuery{Prefix: "jobs/", State: "held", Limit: 3}
	for pages := 1; ; pages++ {
		page, err := client.Locks(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		for _, lock := range page.Locks {
			names = append(names, lock.Lock)
		}
		if query.Cursor = page.NextCursor; query.Cursor == "" {
			break
		}
		if pages > 2 {
			t.Fatal("the pages do not end")
		}
	}
	if got := strings.Join(names, " "); got != "jobs/0 jobs/1 jobs/3 jobs/4" {
		t.Errorf("got %s", got)
	}
	_, err := client.Locks(ctx, lockclient.LocksQuery{Limit: 1001})
	wantRefused(t, err, lockclient.ErrInvalidRequest)
}

// wantRefused checks that the gateway's answer has the sentinel.
func wantRefused(t *testing.T, err, want error) {
	t.Helper()
	_ = wantProblem(t, err, want)
}

// wantProblem checks the sentinel, and returns the problem, which came from the gateway.
func wantProblem(t *testing.T, err, want error) *api.Problem {
	t.Helper()
	var problem *api.Problem
	if !errors.Is(err, want) || !errors.As(err, &problem) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if problem.Instance == "" || problem.Detail == "" {
		t.Errorf("%+v does not come from the gateway", problem)
	}
	return problem
}
