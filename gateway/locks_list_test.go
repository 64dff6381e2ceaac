package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// Locks are sorted, selected and counted as the parameters say, on pages of any size.
func TestLocksAreSortedAndSelected(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquireAs(t, "b/<i>", api.AcquireRequest{OwnerID: `"><img src=x>`, TTLMS: ptr(int64(3_000_000))})
	first := h.acquireAs(t, "a/1", api.AcquireRequest{OwnerID: "worker-2", TTLMS: ptr(int64(2_000_000))})
	second := h.acquireAs(t, "c", api.AcquireRequest{OwnerID: "worker-1", TTLMS: ptr(int64(1_000_000))})
	h.release(t, h.acquire(t, "freed", "worker-1"))
	h.expire(t, h.acquire(t, "late", "worker-1"))
	next := h.wait(t, "c", api.AcquireRequest{OwnerID: "next"})
	h.awaitQueue(t, "c", "next")
	last := h.wait(t, "c", api.AcquireRequest{OwnerID: "last"})
	h.awaitQueue(t, "c", "next", "last")
	other := h.wait(t, "a/1", api.AcquireRequest{OwnerID: "next"})
	h.awaitQueue(t, "a/1", "next")
	for query, want := range map[string]string{
		"":                                      "a/1 b/<i> c freed late",
		"sort=name&order=asc":                   "a/1 b/<i> c freed late",
		"order=desc":                            "late freed c b/<i> a/1",
		"sort=expires_at":                       "late c a/1 b/<i> freed",
		"sort=expires_at&order=desc":            "b/<i> a/1 c late freed",
		"sort=granted_at":                       "late b/<i> a/1 c freed",
		"sort=granted_at&order=desc":            "c a/1 b/<i> late freed",
		"sort=fencing_token":                    "b/<i> a/1 c freed late",
		"sort=fencing_token&order=desc":         "late freed c a/1 b/<i>",
		"sort=queue":                            "b/<i> freed late a/1 c",
		"sort=queue&order=desc":                 "c a/1 b/<i> freed late",
		"contains=%3Cim":                        "b/<i>",
		"contains=worker-":                      "a/1 c late",
		"contains=/":                            "a/1 b/<i>",
		"contains=%25":                          "",
		"owner_id=worker-1":                     "c late",
		"owner_id=worker-1&state=held":          "c",
		"owner_id=worker":                       "",
		"state=held&sort=queue&order=desc":      "c a/1 b/<i>",
		"prefix=a&contains=1&owner_id=worker-2": "a/1",
	} {
		for _, limit := range []int{1, 2, 1000} {
			got := pages(t, func(cursor string) ([]string, string) {
				return h.lockNames(t, fmt.Sprintf("limit=%d&%s%s", limit, query, cursor))
			})
			if text := strings.Join(slices.Concat(got...), " "); text != want {
				t.Errorf("%q by %d: %q, want %q", query, limit, text, want)
			}
		}
		page := as[api.Locks](t, h.get(t, "/v1/locks?count=true&limit=1&"+query), http.StatusOK)
		if page.Total == nil || *page.Total != int64(len(strings.Fields(want))) {
			t.Errorf("%q: counted are %v, want those of %q", query, page.Total, want)
		}
	}
	for queueMax, want := range map[string]int{"0": 0, "1": 1, "2": 2, "1000": 2} {
		page := as[api.Locks](t, h.get(t, "/v1/locks?prefix=c&queue_max="+queueMax), http.StatusOK)
		if len(page.Locks) != 1 || page.Locks[0].QueueLength != 2 || len(page.Locks[0].Queue) != want || page.Total != nil {
			t.Errorf("queue_max %s shows %+v", queueMax, page)
		}
	}
	if lock := as[api.Lock](t, h.get(t, "/v1/locks/c"), http.StatusOK); lock.QueueLength != 2 || len(lock.Queue) != 2 {
		t.Errorf("by itself it is %+v", lock)
	}
	h.release(t, first)
	h.release(t, second)
	h.release(t, granted(t, other))
	h.release(t, granted(t, next))
	granted(t, last)
}

// A cursor goes on in the order that it was given for, and in no other.
func TestCursorsOfLocks(t *testing.T) {
	h := newHarness(t, Config{})
	for _, lock := range []string{"a b", "queue 5 a", "z"} {
		h.acquire(t, lock, "worker")
	}
	orders := []string{"", "&order=desc", "&sort=queue", "&sort=queue&order=desc", "&sort=expires_at", "&sort=fencing_token"}
	for _, order := range orders {
		_, cursor := h.lockNames(t, "limit=1"+order)
		for _, other := range orders {
			got := h.get(t, "/v1/locks?limit=1&cursor="+url.QueryEscape(cursor)+other)
			byNameOnly := order == "" || other == "" // plain names, which may be anything
			switch {
			case order == other && got.status != http.StatusOK:
				t.Errorf("after %q: %s", order, got.body)
			case order != other && !byNameOnly:
				if problem := refused(t, got, api.CodeInvalidRequest); !strings.Contains(problem.Detail, "for the same sort and order") {
					t.Errorf("%q after %q: %s", other, order, got.body)
				}
			}
		}
	}
}

func ptr[T any](value T) *T { return &value }

func TestBadQueriesOfLocks(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []badInput
	for query, detail := range map[string]string{
		"sort=owner": "sort must be name, expires_at, granted_at, fencing_token or queue", "sort=NAME": "sort must be", "sort=%00": "sort must be",
		"order=up": "order must be asc or desc", "order=DESC": "order must be", "count=1": "count must be false or true",
		"queue_max=-1": "queue_max is -1, it must be 0 to 1000", "queue_max=1001": "0 to 1000", "queue_max=all": "queue_max must be an integer from 0 to 1000",
		"queue_max=1.5": "0 to 1000", "contains=%00": "contains has a control character", "contains=%FF": "contains is not valid UTF-8",
		"contains=" + strings.Repeat("x", store.NameBytesMax+1): "contains has 513 bytes, the limit is 512",
		"owner_id=%0a": "owner_id has a control character", "owner_id=%FF": "owner_id is not valid UTF-8",
		"owner_id=" + strings.Repeat("x", store.OwnerBytesMax+1): "owner_id has 257 bytes, the limit is 256",
		"sort=queue&cursor=eA": "cursor must be", "sort=queue&cursor=cXVldWUgeCBh": "cursor must be", "sort=queue&cursor=cXVldWUgMSA": "cursor must be",
		"sort=queue&sort=name": "sort is there 2 times",
	} {
		inputs = append(inputs, badInput{name: query, method: http.MethodGet, path: "/v1/locks?" + query, detail: detail})
	}
	h.refusedAll(t, inputs)
}
