package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// The parameters of the list of locks sort, select and count them, on pages of any size.
func TestLocksAreSortedAndSelected(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquireAs(t, "b/<i>", api.AcquireRequest{OwnerID: `"><img src=x>`, TTLMS: new(int64(3_000_000))})
	first := h.acquireAs(t, "a/1", api.AcquireRequest{OwnerID: "worker-2", TTLMS: new(int64(2_000_000))})
	second := h.acquireAs(t, "c", api.AcquireRequest{OwnerID: "worker-1", TTLMS: new(int64(1_000_000))})
	h.release(t, h.acquire(t, "freed", "worker-1"))
	h.expire(t, h.acquire(t, "late", "worker-1"))
	next := h.waitInQueue(t, "c", api.AcquireRequest{OwnerID: "next"})
	last := h.waitInQueue(t, "c", api.AcquireRequest{OwnerID: "last"})
	other := h.waitInQueue(t, "a/1", api.AcquireRequest{OwnerID: "next"})
	for query, want := range map[string]string{
		"":                                      "a/1,b/<i>,c,freed,late",
		"state=held":                            "a/1,b/<i>,c",
		"state=expired":                         "late",
		"state=free":                            "freed",
		"order=desc":                            "late,freed,c,b/<i>,a/1",
		"sort=expires_at":                       "late,c,a/1,b/<i>,freed",
		"sort=expires_at&order=desc":            "b/<i>,a/1,c,late,freed",
		"sort=granted_at":                       "late,b/<i>,a/1,c,freed",
		"sort=fencing_token":                    "b/<i>,a/1,c,freed,late",
		"sort=queue&order=desc":                 "c,a/1,b/<i>,freed,late",
		"contains=%3Cim":                        "b/<i>",
		"contains=%25":                          "",
		"owner_id=worker-1":                     "c,late",
		"prefix=a&contains=1&owner_id=worker-2": "a/1",
		"state=held&sort=name&order=asc":        "a/1,b/<i>,c",
	} {
		expectList(t, h.client, "/v1/locks?"+query, want, lockRows)
		page := as[api.Locks](t, h.get(t, "/v1/locks?count=true&limit=1&"+query), http.StatusOK)
		if page.Total == nil || *page.Total != int64(len(strings.FieldsFunc(want, func(c rune) bool { return c == ',' }))) {
			t.Errorf("%q: the total is %v, want that of %q", query, value(page.Total), want)
		}
	}
	for queueMax, want := range map[string]int{"0": 0, "1": 1, "2": 2, "1000": 2} {
		page := as[api.Locks](t, h.get(t, "/v1/locks?prefix=c&queue_max="+queueMax), http.StatusOK)
		if len(page.Locks) != 1 || page.Locks[0].QueueLength != 2 || len(page.Locks[0].Queue) != want || page.Total != nil {
			t.Errorf("queue_max %s shows %+v, want %d waiters of 2", queueMax, page, want)
		}
	}
	if lock := h.lock(t, "c"); lock.QueueLength != 2 || len(lock.Queue) != 2 {
		t.Errorf("the lock is shown as %+v, want 2 waiters", lock)
	}
	h.release(t, first)
	h.release(t, second)
	h.release(t, granted(t, other))
	h.release(t, granted(t, next))
	granted(t, last)
}

// A cursor is valid only for the sort and order of its list.
func TestCursorsOfLocks(t *testing.T) {
	h := newHarness(t, Config{})
	for _, lock := range []string{"a b", "queue 5 a", "z"} {
		h.acquire(t, lock, "worker")
	}
	orders := []string{"", "&order=desc", "&sort=queue", "&sort=queue&order=desc", "&sort=expires_at",
		"&sort=fencing_token"}
	for _, order := range orders {
		cursor := as[api.Locks](t, h.get(t, "/v1/locks?limit=1"+order), http.StatusOK).NextCursor
		for _, other := range orders {
			got := h.get(t, "/v1/locks?limit=1&cursor="+url.QueryEscape(cursor)+other)
			switch {
			case order == other:
				as[api.Locks](t, got, http.StatusOK)
			case order != "" && other != "": // a cursor by name may be any text
				problem := expectProblem(t, got, api.CodeInvalidRequest)
				if !strings.Contains(problem.Detail, "for the same sort and order") {
					t.Errorf("%q with the cursor of %q: the detail is %q", other, order, problem.Detail)
				}
			}
		}
	}
}
