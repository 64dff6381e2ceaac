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
	first, second := records.Records[0], records.Records[1]
	if first.Key != "a" || first.Version != 1 || first.FencingToken != lease.FencingToken || *first.Sequence != 3 ||
		first.ContentType != "text/plain" || first.Size != 5 || first.UpdatedAt.Before(lease.GrantedAt.Time) {
		t.Errorf("the first record is %+v", first)
	}
	if second.Key != "b" || second.Version != 2 || second.Size != 0 || second.ContentType != "application/octet-stream" {
		t.Errorf("the second record is %+v", second)
	}

	big := h.acquire(t, "big", "worker")
	for i, key := range []string{"b", "a", "c/<i>", "b"} {
		h.putKey(t, big, int64(i)+1, key, "x")
	}
	for query, want := range map[string]string{
		"": "a,b,c/<i>", "?sort=key": "a,b,c/<i>", "?sort=updated_at": "b,c/<i>,a", "?sort=updated_at&prefix=c": "c/<i>",
	} {
		expectList(t, h.client, "/v1/resources/big/records"+query, want, recordRows)
	}
}

const hostile = `"><img src=x onerror=alert(1)>'; drop table x; --`

func TestListOfLeases(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "a", "w1")
	h.release(t, h.acquire(t, "b/c", "w2"))
	h.acquire(t, "b/c", hostile)
	h.expire(t, h.acquire(t, "d", "w1"))
	h.acquire(t, "e", "w1")
	h.breakLock(t, "e", "<b>")
	rows := func(page api.LeaseInfos) (texts []string, next string) {
		for _, l := range page.Leases {
			texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s of %s %s %s", l.Lock, l.OwnerID, l.State, l.EndReason)))
		}
		return texts, page.NextCursor
	}
	a, ofHostile, b2 := "a of w1 running", "b/c of "+hostile+" running", "b/c of w2 ended released"
	ended := "e of w1 ended broken,d of w1 ended expired,"
	for query, want := range map[string]string{
		"": ended + ofHostile + "," + b2 + "," + a, "?state=running": ofHostile + "," + a, "?state=ended": ended + b2,
		"?lock=b%2Fc": ofHostile + "," + b2, "?lock=b/c&state=ended": b2, "?owner_id=w1": ended + a, "?lock=b": "",
		"?owner_id=" + url.QueryEscape(hostile): ofHostile,
	} {
		expectList(t, h.client, "/v1/leases"+query, want, rows)
	}
	broken := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=e"), http.StatusOK).Leases[0]
	if broken.EndNote != "<b>" || broken.EndedAt == nil || broken.InSession || broken.FencingToken < 1 ||
		broken.TTLMS < 1 ||
		broken.EndedAt.Before(broken.GrantedAt.Time) {
		t.Errorf("the broken lease is listed as %+v", broken)
	}
	running := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=a"), http.StatusOK).Leases[0]
	if running.EndedAt != nil || running.EndReason != "" {
		t.Errorf("the running lease is listed as %+v, want no end", running)
	}
}

func TestListOfSessions(t *testing.T) {
	h := newHarness(t, Config{})
	var all []string // the newest first
	for i, owner := range []string{"w1", hostile, "w1"} {
		session := h.createSession(t, owner, time.Hour)
		h.acquireAs(t, fmt.Sprint("job-", i), api.AcquireRequest{OwnerID: owner, SessionID: &session.SessionID})
		state := "live 1"
		if i == 2 {
			h.endSession(t, session)
			state = "ended 0"
		}
		all = append([]string{fmt.Sprintf("%s %s %s", session.SessionID[:8], owner, state)}, all...)
	}
	rows := func(page api.SessionInfos) (texts []string, next string) {
		for _, s := range page.Sessions {
			texts = append(texts, fmt.Sprintf("%s %s %s %d", s.Handle, s.OwnerID, s.State, s.Leases))
		}
		return texts, page.NextCursor
	}
	for query, want := range map[string]string{
		"": strings.Join(all, ","), "?state=live": strings.Join(all[1:], ","), "?state=ended": all[0], "?state=expired": "",
		"?owner_id=w1": all[0] + "," + all[2], "?owner_id=w": "", "?owner_id=w1&state=live": all[2],
	} {
		expectList(t, h.client, "/v1/sessions"+query, want, rows)
	}
}

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

// A row with JSON that PostgreSQL can't read, stored by an older version, does not break the lists.
func TestListsShowJSONThatPostgresCannotRead(t *testing.T) {
	h := newHarness(t, Config{})
	for lock, text := range map[string]string{"b": `{"value":"a\u0000b"}`, "c": `{"value":"\\\ud800"}`} {
		h.acquire(t, lock, "w")
		h.exec(t, "update fence.leases set metadata = $2 where lock = $1", lock, text)
	}
	for _, path := range []string{"/v1/locks", lockPath("b", ""), lockPath("c", ""), "/v1/leases", "/v1/overview"} {
		if got := h.get(t, path); got.status != http.StatusOK {
			t.Errorf("%s: answered %d, want 200: %s", path, got.status, got.body)
		}
	}
}
