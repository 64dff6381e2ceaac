package lockclient_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
)

// ownGateway returns the API of a gateway of this test alone.
func ownGateway(t *testing.T) *lockclient.API {
	t.Helper()
	return newAPI(t, startGateway(t, pgtest.Migrated(t)).URL)
}

func acquire(t *testing.T, client *lockclient.API, lock string) api.Lease {
	t.Helper()
	lease, err := client.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "w"})
	check(t, err)
	return lease
}

// wantProblem expects an error that matches want, and returns its problem, which must be the gateway's.
func wantProblem(t *testing.T, err, want error) *api.Problem {
	t.Helper()
	var problem *api.Problem
	if !errors.Is(err, want) || !errors.As(err, &problem) {
		t.Fatalf("got %v, expected %v", err, want)
	}
	if problem.Instance == "" || problem.Detail == "" {
		t.Errorf("expected the gateway's problem, saw %+v", problem)
	}
	return problem
}

func wantRefused(t *testing.T, err, want error) {
	t.Helper()
	_ = wantProblem(t, err, want)
}

func TestAPILeases(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	ttl, longer := int64(60_000), int64(120_000)
	metadata := json.RawMessage(`{"pod": "<x>"}`)
	lease, err := client.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "w1", TTLMS: &ttl, Metadata: metadata})
	check(t, err)
	if lease.Lock != lock || lease.OwnerID != "w1" || lease.TTLMS != ttl || lease.Mode != "exclusive" ||
		string(lease.Metadata) != `{"pod":"<x>"}` {
		t.Errorf("Acquire returned %+v", lease)
	}
	renewal := api.RenewRequest{OwnerID: "w1", LeaseID: lease.LeaseID, FencingToken: lease.FencingToken, TTLMS: &longer}
	renewed, err := client.Renew(ctx, lock, renewal)
	if err != nil || renewed.LeaseID != lease.LeaseID || renewed.TTLMS != longer ||
		!renewed.ExpiresAt.After(lease.ExpiresAt.Time) {
		t.Errorf("Renew returned %+v, %v", renewed, err)
	}
	_, err = client.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "w2"})
	problem := wantProblem(t, err, lockclient.ErrLockHeld)
	if problem.Holder == nil || problem.Holder.OwnerID != "w1" || problem.RecommendedRetryMS == nil || !problem.Retryable {
		t.Errorf("Acquire of a held lock returned %+v", problem)
	}
	state, err := client.Lock(ctx, lock)
	if err != nil || state.State != "held" || state.FencingToken != lease.FencingToken || len(state.Holders) != 1 {
		t.Errorf("Lock returned %+v, %v", state, err)
	}
	release := api.ReleaseRequest{OwnerID: "w1", LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	for range 2 {
		check(t, client.Release(ctx, lock, release))
	}
	_, err = client.Renew(ctx, lock, renewal)
	if problem := wantProblem(t, err, lockclient.ErrLeaseLost); problem.Reason != "released" {
		t.Errorf("Renew after Release returned %+v", problem)
	}
	wantRefused(t, second(client.Break(ctx, lock, api.BreakRequest{Reason: "test"})), lockclient.ErrNotFound)
}

// A repeated RequestID returns the same lease, and the reason of its end afterwards.
func TestAPIRequestID(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx, id := shared.API(), t.Context(), "r1"
	request := api.AcquireRequest{OwnerID: "w1", RequestID: &id}
	first, firstErr := client.Acquire(ctx, lock, request)
	again, againErr := client.Acquire(ctx, lock, request)
	if firstErr != nil || againErr != nil || again.LeaseID != first.LeaseID {
		t.Errorf("expected one lease, saw %+v, %v, then %+v, %v", first, firstErr, again, againErr)
	}
	broken, err := client.Break(ctx, lock, api.BreakRequest{Reason: "test"})
	if err != nil || !broken.Broken || broken.OwnerID != "w1" || broken.FencingToken != first.FencingToken {
		t.Errorf("Break returned %+v, %v", broken, err)
	}
	_, err = client.Acquire(ctx, lock, request)
	if problem := wantProblem(t, err, lockclient.ErrLeaseLost); problem.Reason != "broken" {
		t.Errorf("Acquire after Break returned %+v", problem)
	}
	release := api.ReleaseRequest{OwnerID: "w1", LeaseID: first.LeaseID, FencingToken: first.FencingToken}
	wantRefused(t, client.Release(ctx, lock, release), lockclient.ErrLeaseLost)
}

func TestAPILocks(t *testing.T) {
	t.Parallel()
	shared, prefix := shared(t)
	client, ctx := shared.API(), t.Context()
	acquire(t, client, prefix)
	for i := range 5 {
		acquire(t, client, fmt.Sprintf("%s/%d", prefix, i))
	}
	check(t, second(client.Break(ctx, prefix+"/2", api.BreakRequest{Reason: "test"})))
	var names, pages int
	query := lockclient.LocksQuery{Prefix: prefix + "/", State: "held", Limit: 3}
	for more := true; more; more = query.Cursor != "" {
		page, err := client.Locks(ctx, query)
		check(t, err)
		names += len(page.Locks)
		pages++
		query.Cursor = page.NextCursor
	}
	if names != 4 || pages != 2 {
		t.Errorf("saw %d locks on %d pages, expected 4 on 2", names, pages)
	}
	wantRefused(t, second(client.Locks(ctx, lockclient.LocksQuery{Limit: 1001})), lockclient.ErrInvalidRequest)
}

func TestAPIWrites(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	lease := acquire(t, client, lock)
	token := lease.FencingToken
	write := lockclient.Write{
		Token: numbered(token, 1), LeaseID: lease.LeaseID, Value: []byte("\x00v\xff"), IfNoneMatch: true,
	}
	first, err := client.Put(ctx, lock, "k", write)
	if err != nil || first.Resource != lock || first.Key != "k" || first.FencingToken != token ||
		*first.Sequence != 1 || first.Replayed {
		t.Fatalf("Put returned %+v, %v", first, err)
	}
	if again, err := client.Put(ctx, lock, "k", write); err != nil || !again.Replayed || again.Version != first.Version {
		t.Errorf("the same Put returned %+v, %v, expected a replay", again, err)
	}
	record, err := client.Get(ctx, lock, "k")
	if err != nil || !bytes.Equal(record.Value, write.Value) || record.ContentType != "application/octet-stream" ||
		record.Version != first.Version || record.Token.String() != fmt.Sprintf("%d.1", token) {
		t.Errorf("Get returned %+v, %v", record, err)
	}
	next, err := client.Put(ctx, lock, "k", lockclient.Write{
		Token: numbered(token, 2), ContentType: "text/plain; charset=utf-8", IfMatch: &first.Version,
	})
	if err != nil || next.Version <= first.Version {
		t.Errorf("the next Put returned %+v, %v", next, err)
	}
	record, err = client.Get(ctx, lock, "k")
	if err != nil || len(record.Value) != 0 || record.ContentType != "text/plain; charset=utf-8" {
		t.Errorf("Get of an empty value returned %+v, %v", record, err)
	}
	removal := lockclient.Removal{Token: numbered(token, 3), LeaseID: lease.LeaseID, IfMatch: &first.Version}
	_, err = client.Delete(ctx, lock, "k", removal)
	if problem := wantProblem(t, err, lockclient.ErrVersionMismatch); *problem.Version != next.Version {
		t.Errorf("Delete of another version returned %+v", problem)
	}
	removal.IfMatch = &next.Version
	if deleted, err := client.Delete(ctx, lock, "k", removal); err != nil || deleted.Version <= next.Version {
		t.Errorf("Delete returned %+v, %v", deleted, err)
	}
	wantRefused(t, second(client.Get(ctx, lock, "k")), lockclient.ErrNotFound)
}

// Each reason for a rejection arrives as its sentinel.
func TestAPIRejectedWrites(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	strict, short := lock+"/strict", int64(100)
	lease := acquire(t, client, lock)
	token := lease.FencingToken
	check(t, second(client.Put(ctx, lock, "k", lockclient.Write{Token: numbered(token, 5)})))
	policy := api.PolicyRequest{RequireLeaseID: true, RequireLiveLease: true}
	check(t, second(client.PutPolicy(ctx, strict, policy)))
	expiring, err := client.Acquire(ctx, strict, api.AcquireRequest{OwnerID: "w", TTLMS: &short})
	check(t, err)
	await.True(t, "the expiry of "+strict, func() bool {
		state, err := client.Lock(ctx, strict)
		return err == nil && state.State == "expired"
	})
	next, late := numbered(token, 6), numbered(expiring.FencingToken, 1)
	version, otherLeaseID := int64(99), "00000000-0000-4000-8000-000000000000"
	for name, test := range map[string]struct {
		resource string
		write    lockclient.Write
		want     error
	}{
		"no token":       {lock, lockclient.Write{}, lockclient.ErrTokenRequired},
		"negative token": {lock, lockclient.Write{Token: api.FencingToken{Token: -1}}, lockclient.ErrInvalidToken},
		"never granted":  {lock, lockclient.Write{Token: numbered(1<<50, 1)}, lockclient.ErrTokenUnknown},
		"used":           {lock, lockclient.Write{Token: numbered(token, 4)}, lockclient.ErrTokenStale},
		"other lease":    {lock, lockclient.Write{Token: next, LeaseID: otherLeaseID}, lockclient.ErrLeaseMismatch},
		"no lease_id":    {strict, lockclient.Write{Token: late}, lockclient.ErrLeaseMismatch},
		"expired":        {strict, lockclient.Write{Token: late, LeaseID: expiring.LeaseID}, lockclient.ErrLeaseExpired},
		"other version":  {lock, lockclient.Write{Token: next, IfMatch: &version}, lockclient.ErrVersionMismatch},
		"record exists":  {lock, lockclient.Write{Token: next, IfNoneMatch: true}, lockclient.ErrVersionMismatch},
		"no JSON": {lock, lockclient.Write{Token: next, ContentType: "application/json", Value: []byte("{")},
			lockclient.ErrInvalidRequest},
		"too large":    {lock, lockclient.Write{Token: next, Value: make([]byte, 1<<20+1)}, lockclient.ErrTooLarge},
		"long name":    {strings.Repeat("n", 513), lockclient.Write{Token: next}, lockclient.ErrInvalidName},
		"bad lease_id": {lock, lockclient.Write{Token: next, LeaseID: "x"}, lockclient.ErrInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, second(client.Put(ctx, test.resource, "k", test.write)), test.want)
		})
	}
	fence, err := client.Fence(ctx, lock)
	if err != nil || fence.GrantedToken != token || !fence.Open || fence.LastToken != token || fence.LastSequence != 5 {
		t.Errorf("the rejected writes changed the fence to %+v, %v", fence, err)
	}
}

func TestAPIRecords(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	token := acquire(t, client, lock).FencingToken
	for i, key := range []string{"x/1", "x/2", "x/3", "y"} {
		write := lockclient.Write{Token: numbered(token, int64(i)), Value: []byte(key), ContentType: "text/plain"}
		check(t, second(client.Put(ctx, lock, key, write)))
	}
	query := lockclient.RecordsQuery{Prefix: "x/", Limit: 2}
	first, err := client.Records(ctx, lock, query)
	if err != nil || len(first.Records) != 2 || first.Records[1].Key != "x/2" || first.Records[1].Size != 3 ||
		*first.Records[1].Sequence != 1 {
		t.Fatalf("the first page is %+v, %v", first, err)
	}
	query.Cursor = first.NextCursor
	next, err := client.Records(ctx, lock, query)
	if err != nil || len(next.Records) != 1 || next.Records[0].Key != "x/3" || next.NextCursor != "" {
		t.Errorf("the second page is %+v, %v", next, err)
	}
}

func TestAPITransactions(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	one, two := lock+"/1", lock+"/2"
	tokenOne, tokenTwo, sequence := acquire(t, client, one).FencingToken, acquire(t, client, two).FencingToken, int64(1)
	bytes64, version := "AP8=", int64(0)
	body := api.TransactionRequest{
		Fences: []api.WriteToken{
			{Resource: one, FencingToken: &tokenOne, Sequence: &sequence},
			{Resource: two, FencingToken: &tokenTwo, Sequence: &sequence},
		},
		Ops: []api.Op{
			{Op: "put", Resource: one, Key: "json", Value: []byte(`{"tag":"<b>&"}`), IfVersion: &version},
			{Op: "put", Resource: two, Key: "bytes", ValueBase64: &bytes64},
		},
	}
	result, err := client.Transaction(ctx, body)
	if err != nil || len(result.Results) != 2 || result.Results[1].Key != "bytes" || result.Results[1].Version < 1 ||
		result.Replayed {
		t.Fatalf("Transaction returned %+v, %v", result, err)
	}
	again, err := client.Transaction(ctx, body)
	if err != nil || !again.Replayed || len(again.Results) != 2 || again.Results[0] != result.Results[0] {
		t.Errorf("the same Transaction returned %+v, %v, expected a replay", again, err)
	}
	for _, want := range [][3]string{{one, "json", `{"tag":"<b>&"}`}, {two, "bytes", "\x00\xff"}} {
		if record, err := client.Get(ctx, want[0], want[1]); err != nil || string(record.Value) != want[2] {
			t.Errorf("%s is %q, %v, expected %q", want[1], record.Value, err, want[2])
		}
	}
	sequence = 2 // of both tokens
	body.Ops[1] = api.Op{Op: "delete", Resource: two, Key: "missing"}
	body.Ops[0].IfVersion = nil
	wantRefused(t, second(client.Transaction(ctx, body)), lockclient.ErrNotFound)
	body.Ops[1] = api.Op{Op: "delete", Resource: two, Key: "bytes", IfVersion: new(int64)}
	_, err = client.Transaction(ctx, body)
	if problem := wantProblem(t, err, lockclient.ErrVersionMismatch); problem.Op == nil || *problem.Op != 1 {
		t.Errorf("expected the index of the rejected operation, saw %+v", problem)
	}
}

func TestAPIPolicies(t *testing.T) {
	t.Parallel()
	client, ctx := ownGateway(t), t.Context()
	check(t, client.Ready(ctx))
	body := api.PolicyRequest{Rule: "same_token", RequireLeaseID: true}
	for _, prefix := range []string{"", "a/b c"} {
		wantRefused(t, second(client.Policy(ctx, prefix)), lockclient.ErrNotFound)
		want := api.Policy{Prefix: prefix, Rule: "same_token", Authority: "builtin", RequireLeaseID: true}
		if set, err := client.PutPolicy(ctx, prefix, body); err != nil || set != want {
			t.Errorf("PutPolicy of %q returned %+v, %v", prefix, set, err)
		}
		if got, err := client.Policy(ctx, prefix); err != nil || got != want {
			t.Errorf("Policy of %q returned %+v, %v", prefix, got, err)
		}
	}
	all, err := client.Policies(ctx)
	if err != nil || len(all.Policies) != 2 || all.Policies[0].Prefix != "" || all.Policies[1].Prefix != "a/b c" {
		t.Errorf("Policies returned %+v, %v", all, err)
	}
	acquire(t, client, "a/b c/d")
	if fence, err := client.Fence(ctx, "a/b c/d"); err != nil || fence.Policy != all.Policies[1] {
		t.Errorf("Fence returned %+v, %v, expected the policy of a/b c", fence, err)
	}
	for _, prefix := range []string{"", "a/b c"} {
		check(t, client.DeletePolicy(ctx, prefix))
		wantRefused(t, client.DeletePolicy(ctx, prefix), lockclient.ErrNotFound)
	}
	wantRefused(t, second(client.PutPolicy(ctx, "a", api.PolicyRequest{Rule: "lax"})), lockclient.ErrInvalidRequest)
	wantRefused(t, second(client.Fence(ctx, "never")), lockclient.ErrNotFound)
}

func TestAPIRejections(t *testing.T) {
	t.Parallel()
	client, ctx := ownGateway(t), t.Context()
	for _, resource := range []string{"a", "b"} {
		_, err := client.Put(ctx, resource, "k", lockclient.Write{Token: api.FencingToken{Token: 7}})
		wantRefused(t, err, lockclient.ErrTokenUnknown)
	}
	wantRefused(t, second(client.Put(ctx, "a", "k", lockclient.Write{})), lockclient.ErrTokenRequired)
	list := func(query lockclient.RejectionsQuery) api.Rejections {
		page, err := client.Rejections(ctx, query)
		check(t, err)
		return page
	}
	await.True(t, "three rejections", func() bool { return len(list(lockclient.RejectionsQuery{}).Rejections) == 3 })
	first := list(lockclient.RejectionsQuery{Limit: 2})
	next := list(lockclient.RejectionsQuery{Limit: 2, Cursor: first.NextCursor})
	if len(first.Rejections) != 2 || len(next.Rejections) != 1 || first.Rejections[1].ID <= next.Rejections[0].ID {
		t.Errorf("the pages are %+v and %+v", first, next)
	}
	for want, query := range map[int]lockclient.RejectionsQuery{
		2: {Resource: "a"},
		1: {Resource: "a", Code: api.CodeTokenRequired},
		0: {Since: time.Now().Add(time.Hour)},
		3: {Since: time.Now().Add(-time.Hour)},
	} {
		if got := list(query).Rejections; len(got) != want {
			t.Errorf("%+v selects %+v, expected %d", query, got, want)
		}
	}
	got := list(lockclient.RejectionsQuery{Resource: "b"}).Rejections[0]
	if got.Code != api.CodeTokenUnknown || got.Key != "k" || *got.Token != 7 || got.Count != 1 || got.Source != "http" {
		t.Errorf("the rejection is %+v", got)
	}
}

// Names come back as they were given, through the gateway's routes and the database.
func TestAPINames(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	for _, name := range []string{"a b/ü?#%;,&=+$", "a%2Fb", "...", "a/b..c", "acquired/fences", "\\:@!'()*", "👩‍🚀/ "} {
		name = lock + "/" + name
		token := acquire(t, client, name).FencingToken
		if state, err := client.Lock(ctx, name); err != nil || state.Lock != name {
			t.Errorf("Lock of %q returned %q, %v", name, state.Lock, err)
		}
		put, err := client.Put(ctx, name, name, lockclient.Write{Token: numbered(token, 1), Value: []byte(name)})
		if err != nil || put.Resource != name || put.Key != name {
			t.Errorf("Put of %q returned %+v, %v", name, put, err)
		}
		if record, err := client.Get(ctx, name, name); err != nil || string(record.Value) != name {
			t.Errorf("Get of %q returned %q, %v", name, record.Value, err)
		}
		page, err := client.Records(ctx, name, lockclient.RecordsQuery{Prefix: name})
		if err != nil || len(page.Records) != 1 || page.Records[0].Key != name {
			t.Errorf("Records of %q returned %+v, %v", name, page, err)
		}
		if policy, err := client.PutPolicy(ctx, name, api.PolicyRequest{}); err != nil || policy.Prefix != name {
			t.Errorf("PutPolicy of %q returned %+v, %v", name, policy, err)
		}
	}
}
