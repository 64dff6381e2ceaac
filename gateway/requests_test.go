package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

func lockPath(lock, action string) string { return "/v1/locks/" + url.PathEscape(lock) + action }

func sessionPath(session api.Session) string { return "/v1/sessions/" + session.SessionID }

func recordPath(resource, key string) string {
	return "/v1/resources/" + url.PathEscape(resource) + "/records/" + url.PathEscape(key)
}

// token is the header of a write under a lease. Sequence 0 stands for a write without a sequence.
func token(lease api.Lease, sequence int64) string {
	fencingToken := api.FencingToken{Token: lease.FencingToken}
	if sequence != 0 {
		fencingToken.Sequence = &sequence
	}
	return api.HeaderFencingToken + ": " + fencingToken.String()
}

func encode(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // documents are the tests' own
	}
	return string(text)
}

// value is what a pointer points to, or nil.
func value[T any](pointer *T) any {
	if pointer == nil {
		return nil
	}
	return *pointer
}

// longTTL keeps leases alive for the whole test, also on a slow machine.
var longTTL = time.Hour.Milliseconds()

func (c client) acquire(t testing.TB, lock, owner string) api.Lease {
	t.Helper()
	return c.acquireAs(t, lock, api.AcquireRequest{OwnerID: owner, TTLMS: &longTTL})
}

func (c client) acquireAs(t testing.TB, lock string, request api.AcquireRequest) api.Lease {
	t.Helper()
	lease := as[api.Lease](t, c.post(t, lockPath(lock, "/acquire"), encode(request)), http.StatusOK)
	if request.Mode != "" && lease.Mode != request.Mode || request.Scope != "" && lease.Scope != request.Scope {
		t.Errorf("the request %+v was granted the lease %+v", request, lease)
	}
	return lease
}

func (c client) release(t testing.TB, lease api.Lease) {
	t.Helper()
	as[api.Released](t, c.post(t, lockPath(lease.Lock, "/release"), refOf(lease)), http.StatusOK)
}

func (c client) renew(t testing.TB, lease api.Lease) api.Lease {
	t.Helper()
	return as[api.Lease](t, c.post(t, lockPath(lease.Lock, "/renew"), refOf(lease)), http.StatusOK)
}

func (c client) breakLock(t testing.TB, lock, reason string) api.Broken {
	t.Helper()
	body := encode(api.BreakRequest{Reason: reason})
	return as[api.Broken](t, c.post(t, lockPath(lock, "/break"), body), http.StatusOK)
}

func (c client) lock(t testing.TB, lock string) api.Lock {
	t.Helper()
	return as[api.Lock](t, c.get(t, lockPath(lock, "")), http.StatusOK)
}

func (c client) fence(t testing.TB, resource string) api.Fence {
	t.Helper()
	return as[api.Fence](t, c.get(t, "/v1/resources/"+resource+"/fence"), http.StatusOK)
}

// refOf is the body of a release or a renewal.
func refOf(lease api.Lease) string {
	return encode(api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken})
}

// noSession is the ID of a session that does not exist.
const noSession = "9d1c6d4e-7a43-4a0e-9b53-6f2f0c8d1e77"

func (c client) createSession(t testing.TB, owner string, ttl time.Duration) api.Session {
	t.Helper()
	body := encode(api.SessionRequest{OwnerID: owner, TTLMS: new(ttl.Milliseconds())})
	return as[api.Session](t, c.post(t, "/v1/sessions", body), http.StatusCreated)
}

func (c client) session(t testing.TB, session api.Session) api.Session {
	t.Helper()
	return as[api.Session](t, c.get(t, sessionPath(session)), http.StatusOK)
}

func (c client) keepAlive(t testing.TB, session api.Session) answer {
	t.Helper()
	return c.send(t, http.MethodPost, sessionPath(session)+"/keepalive", "")
}

func (c client) endSession(t testing.TB, session api.Session) api.SessionEnded {
	t.Helper()
	return as[api.SessionEnded](t, c.delete(t, sessionPath(session)), http.StatusOK)
}

// wait acquires a lock, waits in its queue as long as the gateway allows, and delivers the answer.
func (c client) wait(t testing.TB, lock string, request api.AcquireRequest) <-chan answer {
	t.Helper()
	request.WaitMS = cmp.Or(request.WaitMS, store.WaitMax.Milliseconds())
	return inBackground(func() answer { return c.post(t, lockPath(lock, "/acquire"), encode(request)) })
}

// waitInQueue is wait; it returns when the queue of the lock ends with the owner.
func (c client) waitInQueue(t testing.TB, lock string, request api.AcquireRequest) <-chan answer {
	t.Helper()
	answers := c.wait(t, lock, request)
	await.True(t, fmt.Sprintf("%s waits in the queue of %s", request.OwnerID, lock), func() bool {
		queue := c.lock(t, lock).Queue
		return len(queue) > 0 && queue[len(queue)-1].OwnerID == request.OwnerID
	})
	return answers
}

// granted decodes the lease that a waiter got.
func granted(t testing.TB, answers <-chan answer) api.Lease {
	t.Helper()
	return as[api.Lease](t, <-answers, http.StatusOK)
}

// awaitQueue returns when the queue of a lock has these owners, in order.
func (c client) awaitQueue(t testing.TB, lock string, owners ...string) {
	t.Helper()
	await.True(t, fmt.Sprintf("the queue of %s is %q", lock, owners), func() bool {
		var queued []string
		for _, waiter := range c.lock(t, lock).Queue {
			queued = append(queued, waiter.OwnerID)
		}
		return slices.Equal(queued, owners)
	})
}

// put writes the record "k" of the lease's resource.
func (c client) put(t testing.TB, lease api.Lease, sequence int64, value string) answer {
	t.Helper()
	return c.putKey(t, lease, sequence, "k", value)
}

// putKey writes a record of the lease's resource.
func (c client) putKey(t testing.TB, lease api.Lease, sequence int64, key, value string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodPut, recordPath(lease.Lock, key), value, append(headers, token(lease, sequence))...)
}

// putWith writes the record "k" of a resource with these headers.
func (c client) putWith(t testing.TB, resource string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodPut, recordPath(resource, "k"), "x", headers...)
}

func (c client) setPolicy(t testing.TB, prefix, body string) api.Policy {
	t.Helper()
	return as[api.Policy](t, c.send(t, http.MethodPut, "/v1/policies/"+prefix, body, jsonType), http.StatusOK)
}

// transaction is the body of one that puts a record under a lease.
func transaction(lease api.Lease, sequence int64) string {
	return encode(api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: lease.Lock, FencingToken: &lease.FencingToken, Sequence: &sequence}},
		Ops:    []api.Op{{Op: string(store.Put), Resource: lease.Lock, Key: "t", Value: []byte("1")}},
	})
}

func (c client) transact(t testing.TB, request api.TransactionRequest) answer {
	t.Helper()
	return c.post(t, "/v1/transactions", encode(request))
}
