package lockclient_test

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func TestPolicies(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	body := api.PolicyRequest{Rule: "same_token", RequireLeaseID: true}
	for _, prefix := range []string{"", "a/b c"} {
		_, err := client.Policy(ctx, prefix)
		wantRefused(t, err, lockclient.ErrNotFound)
		want := api.Policy{Prefix: prefix, Rule: "same_token", Authority: "builtin", RequireLeaseID: true}
		if set, err := client.PutPolicy(ctx, prefix, body); err != nil || set != want {
			t.Errorf("put %q: %+v, %v", prefix, set, err)
		}
		if got, err := client.Policy(ctx, prefix); err != nil || got != want {
			t.Errorf("get %q: %+v, %v", prefix, got, err)
		}
	}
	all, err := client.Policies(ctx)
	if err != nil || len(all.Policies) != 2 || all.Policies[0].Prefix != "" || all.Policies[1].Prefix != "a/b c" {
		t.Errorf("list: %+v, %v", all, err)
	}
	acquire(t, client, "a/b c/d")
	if fence, err := client.Fence(ctx, "a/b c/d"); err != nil || fence.Policy != all.Policies[1] {
		t.Errorf("fence: %+v, %v", fence, err)
	}

	for _, prefix := range []string{"", "a/b c"} {
		if err := client.DeletePolicy(ctx, prefix); err != nil {
			t.Errorf("delete %q: %v", prefix, err)
		}
		wantRefused(t, client.DeletePolicy(ctx, prefix), lockclient.ErrNotFound)
	}
	_, err = client.PutPolicy(ctx, "a", api.PolicyRequest{Rule: "lax"})
	wantRefused(t, err, lockclient.ErrInvalidRequest)
	_, err = client.Fence(ctx, "never")
	wantRefused(t, err, lockclient.ErrNotFound)
}

func TestRejections(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	for _, resource := range []string{"a", "b"} {
		_, err := client.Put(ctx, resource, "k", lockclient.Write{Token: api.FencingToken{Token: 7}})
		wantRefused(t, err, lockclient.ErrTokenUnknown)
	}
	_, err := client.Put(ctx, "a", "k", lockclient.Write{})
	wantRefused(t, err, lockclient.ErrTokenRequired)

	list := func(query lockclient.RejectionsQuery) api.Rejections {
		page, err := client.Rejections(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	eventually(t, func() bool { return len(list(lockclient.RejectionsQuery{}).Rejections) == 3 })
	first := list(lockclient.RejectionsQuery{Limit: 2})
	second := list(lockclient.RejectionsQuery{Limit: 2, Cursor: first.NextCursor})
	if len(first.Rejections) != 2 || len(second.Rejections) != 1 || first.Rejections[1].ID <= second.Rejections[0].ID {
		t.Errorf("pages: %+v, %+v", first, second)
	}
	for want, query := range map[int]lockclient.RejectionsQuery{
		2: {Resource: "a"},
		1: {Resource: "a", Code: api.CodeTokenRequired},
		0: {Since: time.Now().Add(time.Hour)},
		3: {Since: time.Now().Add(-time.Hour)},
	} {
		if got := list(query).Rejections; len(got) != want {
			t.Errorf("%+v: got %+v, want %d", query, got, want)
		}
	}
	got := list(lockclient.RejectionsQuery{Resource: "b"}).Rejections[0]
	if got.Code != api.CodeTokenUnknown || got.Key != "k" || *got.Token != 7 || got.Count != 1 || got.Source != "http" {
		t.Errorf("got %+v", got)
	}
}

func TestReady(t *testing.T) {
	if err := newGateway(t).API().Ready(t.Context()); err != nil {
		t.Error(err)
	}
	without := newGatewayOn(t, "postgres://nobody@"+closedAddress(t)+"/none").API()
	wantRefused(t, without.Ready(t.Context()), lockclient.ErrUnavailable)
	_, err := without.Put(t.Context(), "a", "k", lockclient.Write{Token: api.FencingToken{Token: 1}})
	if problem := wantProblem(t, err, lockclient.ErrUnavailable); problem.Outcome != api.OutcomeNotApplied {
		t.Errorf("put: %+v", problem)
	}
}

// Names come back as they were given, through the gateway's routes and the database.
func TestNamesGoThroughTheGateway(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	for _, name := range []string{"a b/ü?#%;,&=+$", "a%2Fb", "...", "a/b..c", "acquired/fences", "\\:@!'()*", "👩‍🚀/ "} {
		token := acquire(t, client, name).FencingToken
		if lock, err := client.Lock(ctx, name); err != nil || lock.Lock != name {
			t.Errorf("%q: the lock is %q, %v", name, lock.Lock, err)
		}
		put, err := client.Put(ctx, name, name, lockclient.Write{Token: numbered(token, 1), Value: []byte(name)})
		if err != nil || put.Resource != name || put.Key != name {
			t.Errorf("%q: put answered %+v, %v", name, put, err)
		}
		if record, err := client.Get(ctx, name, name); err != nil || string(record.Value) != name {
			t.Errorf("%q: got %q, %v", name, record.Value, err)
		}
		page, err := client.Records(ctx, name, lockclient.RecordsQuery{Prefix: name})
		if err != nil || len(page.Records) != 1 || page.Records[0].Key != name {
			t.Errorf("%q: the records are %+v, %v", name, page, err)
		}
		if policy, err := client.PutPolicy(ctx, name, api.PolicyRequest{}); err != nil || policy.Prefix != name {
			t.Errorf("%q: the policy is %+v, %v", name, policy, err)
		}
	}
}
