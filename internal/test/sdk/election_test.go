package sdk

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

func TestCampaign(t *testing.T) {
	t.Parallel()
	client, election := shared(t)
	ctx := await.Context(t)
	value := map[string]string{"url": "http://a"}
	first, err := client.Campaign(ctx, election, value, lockclient.WithLeaseOwner("a"))
	check(t, err)
	if first.Owner() != "a" || first.Name() != election || first.Err() != nil {
		t.Errorf("the term is %v of %s, %v", first, first.Owner(), first.Err())
	}
	leader, err := client.API().Election(ctx, election)
	if err != nil || leader.Leader != "a" || leader.Term != first.FencingToken() ||
		string(leader.Value) != `{"url":"http://a"}` {
		t.Errorf("the leader is %+v, %v, expected a", leader, err)
	}
	_, err = client.Campaign(ctx, election, nil, lockclient.WithLeaseOwner("b"), lockclient.WithWait(0))
	if !errors.Is(err, lockclient.ErrLockHeld) || lockclient.ProblemOf(err).Holder.OwnerID != "a" {
		t.Errorf("a try of b returned %v, expected ErrLockHeld by a", err)
	}
	check(t, second(first.Put(ctx, "k", nil)))
	var waiting sync.WaitGroup
	waiting.Go(func() {
		next, err := client.Campaign(ctx, election, 2, lockclient.WithLeaseOwner("b"))
		if err != nil || next.FencingToken() <= first.FencingToken() {
			t.Errorf("b's campaign returned %v", err)
			return
		}
		defer next.ReleaseOnce()
		wantErr(t, "a's context", causeOf(t, "a's context", first.Context()), lockclient.ErrLeaseReleased)
	})
	awaitQueue(t, client, election, 1)
	for range 2 {
		check(t, first.Release(ctx))
	}
	waiting.Wait()
	if leader, err := client.API().Election(ctx, election); err != nil || leader.Leader != "" {
		t.Errorf("the leader is %+v, %v, expected none", leader, err)
	}
	_, err = client.API().Election(ctx, election+"/never")
	wantErr(t, "Election of an unknown name", err, lockclient.ErrNotFound)
}

func TestCampaignInASession(t *testing.T) {
	t.Parallel()
	client, election := shared(t)
	ctx := await.Context(t)
	session, err := client.NewSession(ctx)
	check(t, err)
	term, err := client.Campaign(ctx, election, nil, lockclient.InSession(session))
	check(t, err)
	check(t, session.Close(ctx))
	wantErr(t, "the cause", causeOf(t, "the term", term.Context()), lockclient.ErrLeaseReleased)
	next, err := client.Campaign(ctx, election, nil, lockclient.WithWait(0), lockclient.WithTTL(time.Hour))
	check(t, err)
	next.ReleaseOnce()
}

func TestObserve(t *testing.T) {
	t.Parallel()
	client, election := shared(t)
	ctx := await.Context(t)
	term, err := client.Campaign(ctx, election, "first", lockclient.WithLeaseOwner("a"))
	check(t, err)
	watch, err := client.Observe(ctx, election)
	check(t, err)
	defer watch.Close()
	var leaders []string
	for seen, err := range watch.All(ctx) {
		check(t, err)
		leaders = append(leaders, fmt.Sprint(seen.Leader, " ", string(seen.Value)))
		switch {
		case seen.Leader == "a":
			check(t, term.Release(ctx))
		case seen.Leader == "" && len(leaders) == 2:
			term, err = client.Campaign(ctx, election, "second", lockclient.WithLeaseOwner("b"))
			check(t, err)
		}
		if seen.Leader == "b" {
			break
		}
	}
	term.ReleaseOnce()
	if got := fmt.Sprintf("%q", leaders); got != `["a \"first\"" " " "b \"second\""]` {
		t.Errorf("observed %s, expected a, none, b", got)
	}
	watch.Close()
	wantErr(t, "Next after Close", second(watch.Next(ctx)), lockclient.ErrClosed)
}
