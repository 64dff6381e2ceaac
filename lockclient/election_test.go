package lockclient_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

func TestElections(t *testing.T) {
	client, election := shared(t)
	ctx := patient(t)
	first, err := client.Campaign(ctx, election, map[string]string{"url": "http://a"}, lockclient.WithLeaseOwner("a"))
	check(t, err)
	if first.Candidate() != "a" || first.Election() != election || first.Term() != first.Lease().FencingToken() || first.Err() != nil {
		t.Errorf("got %+v", first)
	}
	leader, err := client.Leader(ctx, election)
	if err != nil || leader.Leader != "a" || leader.Term != first.Term() || string(leader.Value) != `{"url":"http://a"}` {
		t.Errorf("got %+v, %v", leader, err)
	}
	_, err = client.Campaign(ctx, election, nil, lockclient.WithLeaseOwner("b"), lockclient.WithWait(0))
	if holder := lockclient.Holder(err); !errors.Is(err, lockclient.ErrLockHeld) || holder == nil || holder.OwnerID != "a" {
		t.Errorf("a try: %v", err)
	}
	if _, err := first.Lease().Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
	var standing sync.WaitGroup
	standing.Go(func() {
		second, err := client.Campaign(ctx, election, 2, lockclient.WithLeaseOwner("b"))
		if err != nil || second.Term() <= first.Term() {
			t.Errorf("got %v", err)
			return
		}
		defer second.ResignOnce()
		if cause := done(t, first.Context()); !errors.Is(cause, lockclient.ErrLeaseReleased) {
			t.Errorf("b leads, and a's context ended by %v", cause)
		}
	})
	queued(t, client, election, 1)
	for range 2 {
		check(t, first.Resign(ctx))
	}
	standing.Wait()
	if leader, err := client.Leader(ctx, election); err != nil || leader.Leader != "" {
		t.Errorf("got %+v, %v", leader, err)
	}
	if _, err := client.Leader(ctx, election+"/never"); !errors.Is(err, lockclient.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestACandidateInASession(t *testing.T) {
	client, election := shared(t)
	ctx := patient(t)
	session, err := client.NewSession(ctx)
	check(t, err)
	leadership, err := client.Campaign(ctx, election, nil, lockclient.InSession(session))
	check(t, err)
	check(t, session.Close(ctx))
	if cause := done(t, leadership.Context()); !errors.Is(cause, lockclient.ErrLeaseReleased) {
		t.Errorf("the cause is %v", cause)
	}
	next, err := client.Campaign(ctx, election, nil, lockclient.WithWait(0), lockclient.WithTTL(time.Hour))
	check(t, err)
	next.ResignOnce()
}

func TestObservers(t *testing.T) {
	client, election := shared(t)
	ctx := patient(t)
	leadership, err := client.Campaign(ctx, election, "first", lockclient.WithLeaseOwner("a"))
	check(t, err)
	watch, err := client.Observe(ctx, election)
	check(t, err)
	defer watch.Close()
	var told []string
	for seen, err := range watch.All(ctx) {
		check(t, err)
		told = append(told, fmt.Sprint(seen.Leader, " ", string(seen.Value)))
		switch {
		case seen.Leader == "a":
			check(t, leadership.Resign(ctx))
		case seen.Leader == "" && len(told) == 2:
			leadership, err = client.Campaign(ctx, election, "second", lockclient.WithLeaseOwner("b"))
			check(t, err)
		}
		if seen.Leader == "b" {
			break
		}
	}
	leadership.ResignOnce()
	if got := fmt.Sprintf("%q", told); got != `["a \"first\"" " " "b \"second\""]` {
		t.Errorf("told %s", got)
	}
	watch.Close()
	if _, err := watch.Next(ctx); !errors.Is(err, lockclient.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}
