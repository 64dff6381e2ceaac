package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// pages reads a list page by page until there is none, and gives back what was on each.
func pages(t *testing.T, read func(cursor string) (names []string, next string)) (all [][]string) {
	t.Helper()
	cursor := ""
	for range 1000 {
		names, next := read(cursor)
		all = append(all, names)
		if next == "" {
			return all
		}
		cursor = "&cursor=" + url.QueryEscape(next)
	}
	t.Fatal("the pages don't end")
	return nil
}

func (c client) lockNames(t *testing.T, query string) (names []string, next string) {
	t.Helper()
	page := as[api.Locks](t, c.get(t, "/v1/locks?"+query), http.StatusOK)
	for _, lock := range page.Locks {
		names = append(names, lock.Lock)
	}
	return names, page.NextCursor
}

func (c client) recordKeys(t *testing.T, query string) (names []string, next string) {
	t.Helper()
	page := as[api.Records](t, c.get(t, "/v1/resources/big/records?"+query), http.StatusOK)
	for _, record := range page.Records {
		names = append(names, record.Key)
	}
	return names, page.NextCursor
}

// manyNames are 250 in byte order, with some that sort unlike words do and some with the greatest character.
func manyNames() (names []string) {
	for i := range 240 {
		names = append(names, fmt.Sprintf("many/%03d", i))
	}
	names = append(names, "Many", "many", "many ", "many!", "many/\U0010ffff", "many/\U0010ffff/\U0010ffff", "many\u00e9", "manyé/x", "mano", "manz")
	slices.Sort(names)
	return names
}

func TestLists(t *testing.T) {
	h := newHarness(t, Config{})
	names := manyNames()
	for _, name := range names {
		h.acquire(t, name, "worker")
	}
	big := h.acquire(t, "big", "worker")
	for i, name := range names {
		as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("big", name), strings.Repeat("x", i), token(big, int64(i)+1)), http.StatusCreated)
	}
	h.release(t, big)
	byPrefix := func(prefix string) (matching []string) {
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				matching = append(matching, name)
			}
		}
		return matching
	}
	lists := map[string]func(*testing.T, string) ([]string, string){
		"records": h.recordKeys,
		"locks":   func(t *testing.T, query string) ([]string, string) { return h.lockNames(t, query+"&state=held") },
	}
	for list, read := range lists {
		for _, limit := range []int{1, 7, 125, 249, 250, 251, 1000} {
			got := pages(t, func(cursor string) ([]string, string) { return read(t, fmt.Sprintf("limit=%d%s", limit, cursor)) })
			if !slices.Equal(slices.Concat(got...), names) {
				t.Errorf("%s by %d: %q", list, limit, slices.Concat(got...))
			}
			for i, page := range got {
				if len(page) > limit || len(page) < limit && i < len(got)-1 {
					t.Errorf("%s by %d: page %d has %d", list, limit, i, len(page))
				}
			}
		}
		if page, next := read(t, ""); len(page) != 100 || next == "" {
			t.Errorf("%s: by default a page has %d, next %q", list, len(page), next)
		}
		for _, prefix := range []string{"many/", "many/00", "many", "m", "many/\U0010ffff", "many ", "x", "big", strings.Repeat("y", 512), ""} {
			got := slices.Concat(pages(t, func(cursor string) ([]string, string) {
				return read(t, "limit=60&prefix="+url.QueryEscape(prefix)+cursor)
			})...)
			if !slices.Equal(got, byPrefix(prefix)) {
				t.Errorf("%s with prefix %q: %q, want %q", list, prefix, got, byPrefix(prefix))
			}
		}
	}
}

func TestListOfStates(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "held", "worker")
	h.expire(t, h.acquire(t, "late", "worker"))
	h.release(t, h.acquire(t, "freed", "worker"))
	h.expire(t, h.acquire(t, "swept", "worker"))
	h.exec(t, "select fence.sweep_leases('0', 10)")
	for query, want := range map[string]string{"state=held": "held", "state=expired": "late swept", "state=free": "freed", "": "freed held late swept"} {
		if names, _ := h.lockNames(t, query); strings.Join(names, " ") != want {
			t.Errorf("%q are %q, want %q", query, names, want)
		}
	}
	if names, _ := h.lockNames(t, "state=held&prefix=l"); len(names) != 0 {
		t.Errorf("held with l are %q", names)
	}
}

func TestListOfRecords(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "empty", "worker")
	for _, resource := range []string{"empty", "nowhere"} {
		if none := as[api.Records](t, h.get(t, "/v1/resources/"+resource+"/records"), http.StatusOK); none.Records == nil || len(none.Records) != 0 || none.NextCursor != "" {
			t.Errorf("the records of %s are %+v", resource, none)
		}
	}
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("job", "a"), "12345", token(lease, 3), "Content-Type: text/plain"), http.StatusCreated)
	as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("job", "b"), "", token(lease, 4)), http.StatusCreated)
	records := as[api.Records](t, h.get(t, "/v1/resources/job/records"), http.StatusOK)
	if records.Resource != "job" || len(records.Records) != 2 {
		t.Fatalf("the records are %+v", records)
	}
	first, second := records.Records[0], records.Records[1]
	if first.Key != "a" || first.Version != 1 || first.FencingToken != lease.FencingToken || *first.Sequence != 3 || first.ContentType != "text/plain" ||
		first.Size != 5 || first.UpdatedAt.Before(lease.GrantedAt.Time) {
		t.Errorf("the first is %+v", first)
	}
	if second.Key != "b" || second.Version != 2 || second.Size != 0 || second.ContentType != "application/octet-stream" {
		t.Errorf("the second is %+v", second)
	}
}
