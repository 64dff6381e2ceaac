package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// expectList reads a list with several limits, and expects these rows, joined by commas.
func expectList[Page any](t testing.TB, c client, path, want string, rows func(Page) (texts []string, next string)) {
	t.Helper()
	mark := map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]
	for _, limit := range []int{1, 2, 1000} {
		var all []string
		for cursor, more := "", true; more; {
			page := as[Page](t, c.get(t, fmt.Sprintf("%s%slimit=%d%s", path, mark, limit, cursor)), http.StatusOK)
			texts, next := rows(page)
			if all = append(all, texts...); len(texts) > limit || len(all) > 1000 {
				t.Fatalf("%s by %d: a page has %d rows, and all have %d so far", path, limit, len(texts), len(all))
			}
			cursor, more = "&cursor="+url.QueryEscape(next), next != ""
		}
		if got := strings.Join(all, ","); got != want {
			t.Errorf("%s by %d: the rows are %s, want %s", path, limit, got, want)
		}
	}
}

func lockRows(page api.Locks) (names []string, next string) {
	for _, lock := range page.Locks {
		names = append(names, lock.Lock)
	}
	return names, page.NextCursor
}

func recordRows(page api.Records) (keys []string, next string) {
	for _, record := range page.Records {
		keys = append(keys, record.Key)
	}
	return keys, page.NextCursor
}

// A record is listed with its version, token, type and size. Records are sorted by key or by their last write.
func TestListOfRecords(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "empty", "worker")
	for _, resource := range []string{"empty", "nowhere"} {
		none := as[api.Records](t, h.get(t, "/v1/resources/"+resource+"/records"), http.StatusOK)
		if none.Records == nil || len(none.Records) != 0 || none.NextCursor != "" {
			t.Errorf("the records of %s are %+v, want an empty list", resource, none)
		}
	}
	lease := h.acquire(t, "job", "worker")
	h.putKey(t, lease, 3, "a", "12345", "Content-Type: text/plain")
	h.putKey(t, lease, 4, "b", "")
	records := as[api.Records](t, h.get(t, "/v1/resources/job/records"), http.StatusOK)
	if records.Resource != "job" || len(records.Records) != 2 {
		t.Fatalf("the list is %+v, want two records of job", records)
	}
	if first := records.Records[0]; first.Key != "a" || first.Version != 1 || first.FencingToken != lease.FencingToken || *first.Sequence != 3 ||
		first.ContentType != "text/plain" || first.Size != 5 || first.UpdatedAt.Before(lease.GrantedAt.Time) {
		t.Errorf("the first record is %+v", first)
	}
	big := h.acquire(t, "big", "worker")
	for i, key := range []string{"b", "a", "c/<i>", "b"} {
		h.putKey(t, big, int64(i)+1, key, "x")
	}
	for query, want := range map[string]string{"": "a,b,c/<i>", "?sort=updated_at": "b,c/<i>,a", "?prefix=c": "c/<i>"} {
		expectList(t, h.client, "/v1/resources/big/records"+query, want, recordRows)
	}
}

const hostile = `"><img src=x onerror=alert(1)>'; drop table x; --`

// What others may read has no lease_id, session_id or request_id: events, refusals, lists and their cursors.
func TestOthersSeeNoSecrets(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	watch := h.open(t, watchPath)
	if lock := dataOf[api.WatchState](t, watch.next(t, api.EventState)); lock.State != "free" || lock.FencingToken != 0 ||
		lock.Lock.Lock != "job" {
		t.Errorf("the state of a lock that never existed is %+v, want it free", lock)
	}
	request := api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID, RequestID: new("request-of-w")}
	secrets := []string{
		session.SessionID, strings.ReplaceAll(session.SessionID, "-", ""), *request.RequestID, `"lease_id"`, `"session_id"`,
		h.acquireAs(t, "job", request).LeaseID, h.acquireAs(t, "other", request).LeaseID,
	}
	event := watch.next(t, api.EventState)
	held := h.post(t, lockPath("job", "/acquire"), `{"owner_id":"x"}`)
	expectProblem(t, held, api.CodeLockHeld)
	texts := []string{
		event.Data, string(held.body), (<-h.open(t, watchPath).events).Data,
	}
	for _, path := range []string{
		"/v1/locks?limit=1", "/v1/locks?sort=expires_at&limit=1", "/v1/locks?sort=queue&limit=1", "/v1/leases?limit=1",
		"/v1/leases?state=running", "/v1/sessions", "/v1/waits", "/v1/locks/job", "/v1/resources/job/fence",
	} {
		got := h.get(t, path)
		if got.status != http.StatusOK {
			t.Errorf("%s: answered %d, want 200: %s", path, got.status, got.body)
		}
		texts = append(texts, string(got.body)+decodedCursor(t, got.body))
	}
	for _, text := range texts {
		if containsAny(text, secrets...) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}

// decodedCursor returns the text of an answer's cursor, or "".
func decodedCursor(t testing.TB, body []byte) string {
	t.Helper()
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		t.Fatal(err)
	}
	cursor, err := base64.RawURLEncoding.DecodeString(page.NextCursor)
	if err != nil {
		t.Fatal(err)
	}
	return string(cursor) + fmt.Sprintf(" %x", cursor)
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

// The parameters of the lists of locks, leases and waits reach their queries, and the pages of any size are
// whole. store/postgres compares what the queries select, and in which order, with models.
func TestParametersOfLists(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquireAs(t, "b/<i>", api.AcquireRequest{OwnerID: hostile, TTLMS: new(int64(3_000_000))})
	h.acquireAs(t, "a/1", api.AcquireRequest{OwnerID: "w2", TTLMS: new(int64(2_000_000))})
	held := h.acquireAs(t, "c", api.AcquireRequest{OwnerID: "w1", TTLMS: new(int64(1_000_000))})
	h.release(t, h.acquire(t, "freed", "w1"))
	h.expire(t, h.acquire(t, "late", "w1"))
	next := h.waitInQueue(t, "c", api.AcquireRequest{OwnerID: "next"})
	last := h.waitInQueue(t, "c", api.AcquireRequest{OwnerID: "last"})
	for query, want := range map[string]string{
		"": "a/1,b/<i>,c,freed,late", "state=free": "freed", "order=desc": "late,freed,c,b/<i>,a/1",
		"sort=expires_at": "late,c,a/1,b/<i>,freed", "sort=queue&order=desc": "c,a/1,b/<i>,freed,late",
		"contains=%3Cim": "b/<i>", "owner_id=w1": "c,late", "prefix=a&contains=1": "a/1",
	} {
		expectList(t, h.client, "/v1/locks?"+query, want, lockRows)
	}
	page := as[api.Locks](t, h.get(t, "/v1/locks?prefix=c&queue_max=1&count=true"), http.StatusOK)
	if lock := page.Locks[0]; value(page.Total) != int64(1) || lock.QueueLength != 2 || len(lock.Queue) != 1 {
		t.Errorf("with queue_max=1 the page is %+v, want one waiter of 2, and the total 1", page)
	}
	graph := as[api.Waits](t, h.get(t, "/v1/waits?lock=c&limit=1"), http.StatusOK)
	if wait := graph.Waits[0]; !graph.Truncated || len(graph.Waits) != 1 || wait.OwnerID != "next" || wait.Mode != "exclusive" ||
		wait.Scope != "node" || wait.For[0].OwnerID != "w1" || wait.For[0].Relation != "holds" || wait.For[0].Lock != "c" {
		t.Errorf("the graph of one wait is %+v, want that of next for w1", graph)
	}
	graph = as[api.Waits](t, h.get(t, "/v1/waits?owner_id=last"), http.StatusOK)
	if graph.Truncated || len(graph.Waits) != 1 || len(graph.Waits[0].For) != 2 || graph.Waits[0].For[1].Relation != "before" {
		t.Errorf("the graph of last is %+v, want that it waits for w1 and next", graph)
	}
	h.release(t, held)
	h.release(t, granted(t, next))
	granted(t, last)

	for query, want := range map[string]string{
		"?state=running": "last of c,w2 of a/1," + hostile + " of b/<i>",
		"?state=ended":   "next of c ended released,w1 of late ended expired,w1 of freed ended released,w1 of c ended released",
		"?lock=a/1":      "w2 of a/1", "?owner_id=" + url.QueryEscape(hostile): hostile + " of b/<i>",
	} {
		expectList(t, h.client, "/v1/leases"+query, want, func(page api.LeaseInfos) (texts []string, next string) {
			for _, l := range page.Leases {
				texts = append(texts, strings.TrimSuffix(fmt.Sprintf("%s of %s %s %s", l.OwnerID, l.Lock, l.State, l.EndReason), " running "))
			}
			return texts, page.NextCursor
		})
	}
	h.breakLock(t, "a/1", "<b>")
	broken := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=a/1"), http.StatusOK).Leases[0]
	if broken.EndReason != "broken" || broken.EndNote != "<b>" || broken.EndedAt == nil || broken.InSession || broken.TTLMS < 1 {
		t.Errorf("the broken lease is listed as %+v", broken)
	}
}

func TestListOfSessions(t *testing.T) {
	h := newHarness(t, Config{})
	live, ended := h.createSession(t, hostile, time.Hour), h.createSession(t, "w1", time.Hour)
	h.endSession(t, ended)
	h.acquireAs(t, "in-session", api.AcquireRequest{OwnerID: hostile, SessionID: &live.SessionID})
	one, other := live.SessionID[:8]+" live 1", ended.SessionID[:8]+" ended 0"
	for query, want := range map[string]string{
		"": other + "," + one, "?state=live": one, "?owner_id=w1": other, "?owner_id=w1&state=live": "",
	} {
		expectList(t, h.client, "/v1/sessions"+query, want, func(page api.SessionInfos) (texts []string, next string) {
			for _, s := range page.Sessions {
				texts = append(texts, fmt.Sprintf("%s %s %d", s.Handle, s.State, s.Leases))
			}
			return texts, page.NextCursor
		})
	}
}
