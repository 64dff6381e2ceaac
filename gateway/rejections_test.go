package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// rejections records what was noted, and lists it.
func (h *harness) rejections(t testing.TB, query string) api.Rejections {
	t.Helper()
	h.record(t)
	return as[api.Rejections](t, h.get(t, "/v1/rejections"+query), http.StatusOK)
}

// rejectGroups records this many rejections of unknown tokens, each a group of its own.
func (h *harness) rejectGroups(t testing.TB, groups int) {
	t.Helper()
	h.exec(t, `select count(*) from fence.record_rejections(
		(select array_agg('jobs/' || n) from generate_series(1, $1) n), array_fill('k'::text, array[$1]),
		array_fill('token_unknown'::text, array[$1]), array_fill(''::text, array[$1]), array_fill('http'::text, array[$1]),
		array_fill('192.0.2.1'::text, array[$1]), array_fill(7::bigint, array[$1]), array_fill(null::bigint, array[$1]),
		array_fill(0::bigint, array[$1]), array_fill(0::bigint, array[$1]), array_fill(0::bigint, array[$1]),
		array_fill(1::bigint, array[$1]), array_fill(clock_timestamp(), array[$1]),
			array_fill(clock_timestamp(), array[$1]))`,
		groups)
}

// Repeated writes of a zombie are one group: it has the write, the tokens, the owner, the count and the lateness.
func TestRejectionGroup(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	begun := time.Now().Add(-time.Second).Truncate(time.Millisecond)
	for sequence := range int64(5) {
		expectProblem(t, h.put(t, zombie, sequence+1, "late"), api.CodeTokenStale)
	}
	got := h.rejections(t, "")
	if len(got.Rejections) != 1 {
		t.Fatalf("five writes of one zombie are the groups %+v, want one group", got.Rejections)
	}
	r := got.Rejections[0]
	if r.Resource != "job" || r.Key != "k" || r.Code != api.CodeTokenStale || r.Reason != "superseded" ||
		r.Source != "http" || r.Address != "127.0.0.1" {
		t.Errorf("the rejected write is described as %+v", r)
	}
	if value(r.Token) != zombie.FencingToken || value(r.Sequence) != int64(5) || r.GrantedToken != current.FencingToken ||
		r.LastToken != 0 || r.LastSequence != 0 {
		t.Errorf("the tokens of the group are %+v, presented %v.%v", r, value(r.Token), value(r.Sequence))
	}
	if r.OwnerID != "zombie" || r.Count != 5 || r.FirstAt.Before(begun) || r.LastAt.Before(r.FirstAt.Time) {
		t.Errorf("the owner, count or times of the group are wrong: %+v", r)
	}
	if r.LateMS == nil || *r.LateMS < time.Hour.Milliseconds() || *r.LateMS > 2*time.Hour.Milliseconds() {
		t.Errorf("the group is late by %v ms, want a little more than an hour", value(r.LateMS))
	}
	expectProblem(t, h.put(t, zombie, 6, "late"), api.CodeTokenStale)
	again := h.rejections(t, "").Rejections
	if len(again) != 1 || again[0].Count != 6 || again[0].ID != r.ID || !again[0].FirstAt.Equal(r.FirstAt.Time) {
		t.Errorf("after another write the groups are %+v, want the same one with the count 6", again)
	}
}

// Every rejection by the rule is recorded. Other errors and admitted writes are not.
func TestRejectionsOfEveryKind(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	as[api.WriteResult](t, h.put(t, current, 1, "x"), http.StatusCreated)
	expectProblem(t, h.put(t, zombie, 0, "x"), api.CodeTokenStale)
	expectProblem(t, h.delete(t, recordPath("job", "k")), api.CodeTokenRequired)
	expectProblem(t, h.putWith(t, "job", "Fencing-Token: 9007199254740991"), api.CodeTokenUnknown)
	expectProblem(t, h.putWith(t, "job", token(current, 2), "Lease-Id: "+zombie.LeaseID), api.CodeLeaseMismatch)
	expectProblem(t, h.putWith(t, "job", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	expectProblem(t, h.post(t, "/v1/transactions", transaction(zombie, 1)), api.CodeTokenStale)
	expectProblem(t, h.delete(t, recordPath("job", "none"), token(current, 2)), api.CodeNotFound)
	expectProblem(t, h.putWith(t, "job", "Fencing-Token: 0"), api.CodeInvalidToken)
	var codes []string
	for _, r := range h.rejections(t, "").Rejections {
		codes = append(codes, fmt.Sprintf("%s by %s %d", r.Code, r.Source, r.Count))
		if (r.Token == nil) != (r.Code == api.CodeTokenRequired) {
			t.Errorf("the group %+v has a token without one in the request, or the reverse", r)
		}
	}
	slices.Sort(codes)
	want := []string{
		"lease_mismatch by http 1", "token_required by http 1", "token_stale by http 1", "token_stale by transaction 1",
		"token_unknown by http 1", "version_mismatch by http 1",
	}
	if !slices.Equal(codes, want) {
		t.Errorf("the recorded groups are %q, want %q", codes, want)
	}
}

// Lists are sorted by ID or by the last change, have pages of any size, and times in any format.
func TestRejectionPages(t *testing.T) {
	h := newHarness(t, Config{})
	const many = 25
	h.rejectGroups(t, many)
	expectProblem(t, h.putWith(t, "jobs/7", "Fencing-Token: 7"), api.CodeTokenUnknown)
	h.record(t)
	h.exec(t, "update fence.rejections set changed_at = clock_timestamp(), count = 5 where resource = 'jobs/9'")
	for sort, want := range map[string][]string{
		"": {"jobs/7"}, "&sort=last_seen": {"jobs/9", "jobs/7"},
	} {
		for _, limit := range []int{1, 4, many, many + 1, 1000} {
			var found []string
			ids := map[int64]bool{}
			for _, page := range pages(t, func(cursor string) (names []string, next string) {
				list := h.rejections(t, fmt.Sprintf("?limit=%d%s%s", limit, sort, cursor))
				for _, r := range list.Rejections {
					ids[r.ID] = true
					names = append(names, r.Resource)
				}
				return names, list.NextCursor
			}) {
				found = append(found, page...)
			}
			if len(found) != many+1 || len(ids) != many+1 || !slices.Equal(found[:len(want)], want) {
				t.Errorf("%q by %d: listed are %d groups, %q, want %d that begin with %q", sort, limit, len(ids), found, many+1,
					want)
			}
		}
	}
	for query, want := range map[string]int{
		"resource=jobs%2F8": 1, "resource=jobs": 0, "since=2000-01-01T00:00:00Z&resource=jobs/9": 1,
		"since=9999-12-31T23:59:59.999Z": 0, "since=0001-01-01T00:00:00%2B14:00&code=token_unknown": many + 1,
	} {
		if found := h.rejections(t, "?limit=1000&"+query).Rejections; len(found) != want {
			t.Errorf("%s lists %d groups, want %d", query, len(found), want)
		}
	}
}

// rejectOfMany records groups that differ in what the filters select. The last one is on "other".
func rejectOfMany(t *testing.T, h *harness) (zombie, current api.Lease) {
	t.Helper()
	zombie, current = h.zombie(t, "job/1")
	expectProblem(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	expectProblem(t, h.put(t, zombie, 2, "late"), api.CodeTokenStale)
	as[api.WriteResult](t, h.put(t, current, 2, "x"), http.StatusCreated)
	expectProblem(t, h.put(t, current, 1, "y"), api.CodeTokenStale)
	expectProblem(t, h.putWith(t, "job/2", "Fencing-Token: 1"), api.CodeTokenUnknown)
	h.record(t)
	expectProblem(t, h.putWith(t, "other"), api.CodeTokenRequired)
	h.record(t)
	return zombie, current
}

// Every parameter selects what its name says, in lists, exports and summaries.
func TestRejectionFilters(t *testing.T) {
	h := newHarness(t, Config{})
	_, current := rejectOfMany(t, h)
	other := h.rejections(t, "?resource=other").Rejections[0]
	at := url.QueryEscape(other.FirstAt.Format("2006-01-02T15:04:05.000Z"))
	for query, want := range map[string]int{
		"": 4, "resource=job/1": 2, "prefix=job": 3, "prefix=job/2": 1, "prefix=ob": 0, "code=token_stale": 2,
		"reason=reused":     1,
		"reason=superseded": 1, "source=http": 4, "source=sql": 0, "owner_id=zombie": 1, "owner_id=current": 1,
		"since=" + at: 1, "until=" + at: 3, "since=" + at + "&until=" + at: 0,
		"prefix=job/&code=token_stale&reason=superseded&source=http&owner_id=zombie&until=" + at + "&resource=job/1": 1,
	} {
		listed := len(h.rejections(t, "?"+query).Rejections)
		exported := len(rejectionsCSV(t, h.get(t, "/v1/rejections?format=csv&"+query)))
		summary := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary?"+query), http.StatusOK)
		if listed != want || exported != want || summary.Groups != int64(want) {
			t.Errorf("%s lists %d, exports %d and counts %d groups, want %d", query, listed, exported, summary.Groups, want)
		}
	}
	for _, r := range h.rejections(t, "").Rejections {
		if by := value(r.SupersededBy); r.Reason == "superseded" && by != current.FencingToken ||
			r.Reason != "superseded" && by != nil {
			t.Errorf("superseded_by is %v in the group %+v", by, r)
		}
	}
}

func TestRejectionSummary(t *testing.T) {
	h := newHarness(t, Config{})
	rejectOfMany(t, h)
	got := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary"), http.StatusOK)
	if got.Writes != 5 || got.Groups != 4 ||
		fmt.Sprint(got.ByCode) != "map[token_required:1 token_stale:3 token_unknown:1]" {
		t.Errorf("the summary is %+v, want 5 writes in 4 groups", got)
	}
	var tops []string
	for _, owner := range got.Owners {
		tops = append(tops, fmt.Sprintf("%s %d %d %v", owner.OwnerID, owner.Writes, owner.Groups, owner.LateMSMax != nil))
	}
	for _, r := range got.Resources {
		tops = append(tops, fmt.Sprintf("%s %d %d %v", r.Resource, r.Writes, r.Groups, r.LateMSMax != nil))
	}
	want := "zombie 2 1 true, current 1 1 false, job/1 3 2 true, job/2 1 1 false, other 1 1 false"
	if text := strings.Join(tops, ", "); text != want {
		t.Errorf("the owners and resources with most rejections are %s, want %s", text, want)
	}
	none := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary?resource=none"), http.StatusOK)
	if none.Writes != 0 || none.Groups != 0 || len(none.ByCode)+len(none.Owners)+len(none.Resources) != 0 {
		t.Errorf("the summary of no rejections is %+v", none)
	}
}

// A record that is full or can't be written changes no verdict.
func TestRecordingChangesNoVerdict(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	h.exec(t, "alter table fence.rejections rename to hidden")
	for sequence := range int64(3) {
		expectProblem(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
		if err := h.recordNow(t); err == nil {
			t.Fatal("the record was written to a table that does not exist")
		}
		status := map[bool]int{true: http.StatusCreated, false: http.StatusOK}[sequence == 0]
		as[api.WriteResult](t, h.put(t, current, sequence+1, "in time"), status)
	}
	h.exec(t, "alter table fence.hidden rename to rejections")
	if kept := h.rejections(t, "").Rejections; len(kept) != 1 || kept[0].Count != 3 {
		t.Errorf("the recorded groups are %+v, want one with the count 3", kept)
	}

	for i := 0; h.recorder.Dropped() == 0; i++ {
		resource := store.Name("other/" + strconv.Itoa(i))
		h.recorder.Record(&store.RejectedError{Verdict: store.VerdictTokenRequired, Resource: resource}, "http", "test")
	}
	dropped := h.recorder.Dropped()
	expectProblem(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	as[api.WriteResult](t, h.put(t, current, 4, "in time"), http.StatusOK)
	if h.recorder.Dropped() != dropped+1 {
		t.Errorf("a full recorder dropped %d rejections and then %d, want one more", dropped, h.recorder.Dropped())
	}
}
