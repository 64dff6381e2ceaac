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

// rejectOfMany records what the filters tell apart, and returns when the last of them was seen.
func rejectOfMany(t *testing.T, h *harness) (zombie, current api.Lease) {
	t.Helper()
	zombie, current = h.zombie(t, "job/1")
	refused(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	refused(t, h.put(t, zombie, 2, "late"), api.CodeTokenStale)
	as[api.WriteResult](t, h.put(t, current, 2, "x"), http.StatusCreated)
	refused(t, h.put(t, current, 1, "y"), api.CodeTokenStale)
	refused(t, h.send(t, http.MethodPut, recordPath("job/2", "k"), "x", "Fencing-Token: 1"), api.CodeTokenUnknown)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	refused(t, h.send(t, http.MethodPut, recordPath("other", "k"), "x"), api.CodeTokenRequired)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	return zombie, current
}

// Every parameter of a list reaches the filter of its name, in lists, exports and summaries.
func TestRejectionParameters(t *testing.T) {
	h := newHarness(t, Config{})
	_, current := rejectOfMany(t, h)
	other := h.rejections(t, "?resource=other").Rejections[0]
	at := url.QueryEscape(other.FirstAt.Format("2006-01-02T15:04:05.000Z"))
	for query, want := range map[string]int{
		"": 4, "resource=job/1": 2, "prefix=job": 3, "prefix=job/2": 1, "prefix=ob": 0, "code=token_stale": 2, "reason=reused": 1, "reason=superseded": 1,
		"source=http": 4, "source=sql": 0, "owner_id=zombie": 1, "owner_id=current": 1, "since=" + at: 1, "until=" + at: 3,
		"since=" + at + "&until=" + at: 0, "prefix=job/&code=token_stale&reason=superseded&source=http&owner_id=zombie&until=" + at + "&resource=job/1": 1,
	} {
		if got := h.rejections(t, "?"+query).Rejections; len(got) != want {
			t.Errorf("%s lists %d, want %d", query, len(got), want)
		}
		if rows := rejectionsCSV(t, h.get(t, "/v1/rejections?format=csv&"+query)); len(rows) != want {
			t.Errorf("%s exports %d, want %d", query, len(rows), want)
		}
		summary := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary?"+query), http.StatusOK)
		if summary.Groups != int64(want) {
			t.Errorf("%s counts %d, want %d", query, summary.Groups, want)
		}
	}
	for _, r := range h.rejections(t, "").Rejections {
		if by := value(r.SupersededBy); r.Reason == "superseded" && by != current.FencingToken || r.Reason != "superseded" && r.SupersededBy != nil {
			t.Errorf("superseded by %v: %+v", by, r)
		}
	}
}

func TestRejectionSummary(t *testing.T) {
	h := newHarness(t, Config{})
	rejectOfMany(t, h)
	got := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary"), http.StatusOK)
	if got.Writes != 5 || got.Groups != 4 || fmt.Sprint(got.ByCode) != "map[token_required:1 token_stale:3 token_unknown:1]" {
		t.Errorf("the summary is %+v", got)
	}
	var tops []string
	for _, owner := range got.Owners {
		tops = append(tops, fmt.Sprintf("%s %d %d %v", owner.OwnerID, owner.Writes, owner.Groups, owner.LateMSMax != nil))
	}
	for _, resource := range got.Resources {
		tops = append(tops, fmt.Sprintf("%s %d %d %v", resource.Resource, resource.Writes, resource.Groups, resource.LateMSMax != nil))
	}
	want := "zombie 2 1 true, current 1 1 false, job/1 3 2 true, job/2 1 1 false, other 1 1 false"
	if text := strings.Join(tops, ", "); text != want {
		t.Errorf("the greatest are %s, want %s", text, want)
	}
	none := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary?resource=none"), http.StatusOK)
	if none.Writes != 0 || none.Groups != 0 || len(none.ByCode)+len(none.Owners)+len(none.Resources) != 0 {
		t.Errorf("of nothing it is %+v", none)
	}
}

// Pages by the latest change go on where the one before ended.
func TestRejectionPagesByLastSeen(t *testing.T) {
	h := newHarness(t, Config{})
	const many = 25
	h.rejectStories(t, many)
	refused(t, h.send(t, http.MethodPut, recordPath("jobs/7", "k"), "x", "Fencing-Token: 7", "X-Forwarded-For: 192.0.2.1"), api.CodeTokenUnknown)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	h.exec(t, "update fence.rejections set changed_at = clock_timestamp(), count = 5 where resource = 'jobs/9'")
	var found []string
	for _, page := range pages(t, func(cursor string) (names []string, next string) {
		list := h.rejections(t, "?sort=last_seen&limit=4"+cursor)
		for _, r := range list.Rejections {
			names = append(names, fmt.Sprintf("%s %d", r.Resource, r.ID))
		}
		return names, list.NextCursor
	}) {
		found = append(found, page...)
	}
	if len(found) != many+1 || !strings.HasPrefix(found[0], "jobs/9 ") || !strings.HasPrefix(found[1], "jobs/7 ") {
		t.Errorf("listed are %q", found)
	}
	slices.Sort(found)
	if len(slices.Compact(found)) != many+1 {
		t.Errorf("some are listed twice: %q", found)
	}
}
