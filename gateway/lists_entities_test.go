package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const hostile = `"><img src=x onerror=alert(1)>'; drop table x; --`

// listed reads all pages of a list, each by what name says of its rows.
func listed[Page any](t *testing.T, c client, path string, limit int, rows func(Page) (names []string, next string)) string {
	t.Helper()
	return strings.Join(slices.Concat(pages(t, func(cursor string) ([]string, string) {
		return rows(as[Page](t, c.get(t, fmt.Sprintf("%slimit=%d%s", path, limit, cursor)), http.StatusOK))
	})...), ",")
}

func leaseRows(page api.LeaseInfos) (names []string, next string) {
	for _, lease := range page.Leases {
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s of %s %s %s", lease.Lock, lease.OwnerID, lease.State, lease.EndReason)))
	}
	return names, page.NextCursor
}

func TestListOfLeases(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "a", "w1")
	h.release(t, h.acquire(t, "b/c", "w2"))
	h.acquire(t, "b/c", hostile)
	h.expire(t, h.acquire(t, "d", "w1"))
	h.acquire(t, "e", "w1")
	as[api.Broken](t, h.post(t, lockPath("e", "/break"), `{"reason":"<b>"}`), http.StatusOK)
	for query, want := range map[string]string{
		"":                      "e of w1 ended broken,d of w1 ended expired,b/c of " + hostile + " running,b/c of w2 ended released,a of w1 running",
		"state=running&":        "b/c of " + hostile + " running,a of w1 running",
		"state=ended&":          "e of w1 ended broken,d of w1 ended expired,b/c of w2 ended released",
		"lock=b%2Fc&":           "b/c of " + hostile + " running,b/c of w2 ended released",
		"lock=b/c&state=ended&": "b/c of w2 ended released",
		"owner_id=w1&":          "e of w1 ended broken,d of w1 ended expired,a of w1 running",
		"lock=b&":               "",
		"owner_id=" + url.QueryEscape(hostile) + "&": "b/c of " + hostile + " running",
	} {
		for _, limit := range []int{1, 2, 1000} {
			if got := listed(t, h.client, "/v1/leases?"+query, limit, leaseRows); got != want {
				t.Errorf("%q by %d: %s, want %s", query, limit, got, want)
			}
		}
	}
	broken := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=e"), http.StatusOK).Leases[0]
	if broken.EndNote != "<b>" || broken.EndedAt == nil || broken.InSession || broken.FencingToken < 1 || broken.TTLMS < 1 || broken.EndedAt.Before(broken.GrantedAt.Time) {
		t.Errorf("it is shown as %+v", broken)
	}
	if running := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=a"), http.StatusOK).Leases[0]; running.EndedAt != nil || running.EndReason != "" {
		t.Errorf("one that runs is shown as %+v", running)
	}
}

func TestListOfSessions(t *testing.T) {
	h := newHarness(t, Config{})
	var want []string
	for i, owner := range []string{"w1", hostile, "w1"} {
		session := h.createSession(t, owner, time.Hour)
		state, leases := "live", 1
		h.acquireAs(t, fmt.Sprint("job-", i), api.AcquireRequest{OwnerID: owner, SessionID: &session.SessionID})
		if i == 2 {
			as[api.SessionEnded](t, h.send(t, http.MethodDelete, sessionPath(session), ""), http.StatusOK)
			state, leases = "ended", 0
		}
		want = append([]string{fmt.Sprintf("%s %s %s %d", session.SessionID[:8], owner, state, leases)}, want...)
	}
	rows := func(page api.SessionInfos) (names []string, next string) {
		for _, s := range page.Sessions {
			names = append(names, fmt.Sprintf("%s %s %s %d", s.Handle, s.OwnerID, s.State, s.Leases))
		}
		return names, page.NextCursor
	}
	for query, want := range map[string]string{
		"": strings.Join(want, ","), "state=live&": strings.Join(want[1:], ","), "state=ended&": want[0], "state=expired&": "",
		"owner_id=w1&": want[0] + "," + want[2], "owner_id=w&": "", "owner_id=w1&state=live&": want[2],
	} {
		for _, limit := range []int{1, 2, 1000} {
			if got := listed(t, h.client, "/v1/sessions?"+query, limit, rows); got != want {
				t.Errorf("%q by %d: %s, want %s", query, limit, got, want)
			}
		}
	}
}

func TestListOfElections(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquireAs(t, "plain", api.AcquireRequest{OwnerID: "w", Metadata: []byte(`{"host":"a"}`)})
	as[api.Term](t, h.campaign(t, "a/b", api.CampaignRequest{Candidate: "w1"}), http.StatusOK)
	as[api.Term](t, h.campaign(t, "a/null", api.CampaignRequest{Candidate: "w1", Value: []byte("null")}), http.StatusOK)
	as[api.Term](t, h.campaign(t, "c", api.CampaignRequest{Candidate: hostile, Value: []byte(`{"x":["y",null]}`)}), http.StatusOK)
	h.resign(t, as[api.Term](t, h.campaign(t, "over", api.CampaignRequest{Candidate: "w1", Value: []byte(`1`)}), http.StatusOK))
	rows := func(page api.Elections) (names []string, next string) {
		for _, e := range page.Elections {
			if alone := as[api.Election](t, h.get(t, electionPath(e.Election, "")), http.StatusOK); encode(alone) != encode(e) {
				t.Errorf("the election is listed as %+v, by itself %+v", e, alone)
			}
			names = append(names, fmt.Sprintf("%s %s %s", e.Election, e.Leader, e.Value))
		}
		return names, page.NextCursor
	}
	for query, want := range map[string]string{
		"": "a/b w1 ,a/null w1 ,c " + hostile + ` {"x":["y",null]},over  `, "prefix=a/&": "a/b w1 ,a/null w1 ", "prefix=p&": "",
	} {
		for _, limit := range []int{1, 2, 1000} {
			if got := listed(t, h.client, "/v1/elections?"+query, limit, rows); got != want {
				t.Errorf("%q by %d: %s, want %s", query, limit, got, want)
			}
		}
	}
}

func TestRecordsByTime(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "big", "worker")
	for i, key := range []string{"b", "a", "c/<i>", "b"} {
		h.send(t, http.MethodPut, recordPath("big", key), "x", token(lease, int64(i)+1))
	}
	rows := func(page api.Records) (names []string, next string) {
		for _, record := range page.Records {
			names = append(names, record.Key)
		}
		return names, page.NextCursor
	}
	for query, want := range map[string]string{"": "a,b,c/<i>", "sort=key&": "a,b,c/<i>", "sort=updated_at&": "b,c/<i>,a", "sort=updated_at&prefix=c&": "c/<i>"} {
		for _, limit := range []int{1, 2, 1000} {
			if got := listed(t, h.client, "/v1/resources/big/records?"+query, limit, rows); got != want {
				t.Errorf("%q by %d: %s, want %s", query, limit, got, want)
			}
		}
	}
}

func TestWaits(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "a/1", hostile)
	other := h.acquire(t, "other", "idle")
	first := h.wait(t, "a/1", api.AcquireRequest{OwnerID: "w1"})
	h.awaitQueue(t, "a/1", "w1")
	second := h.wait(t, "a/1", api.AcquireRequest{OwnerID: "w2", Mode: "shared"})
	h.awaitQueue(t, "a/1", "w1", "w2")
	apart := h.wait(t, "other", api.AcquireRequest{OwnerID: "w3"})
	h.awaitQueue(t, "other", "w3")
	show := func(graph api.Waits) (text string) {
		for _, wait := range graph.Waits {
			text += fmt.Sprintf("%s waits for %s (%s, %s)", wait.OwnerID, wait.Lock, wait.Mode, wait.Scope)
			for _, in := range wait.For {
				text += fmt.Sprintf(" %s %s %s", in.OwnerID, in.Relation, in.Lock)
			}
			text += fmt.Sprintln()
		}
		return text + fmt.Sprint(graph.Truncated)
	}
	w1 := "w1 waits for a/1 (exclusive, node) " + hostile + " holds a/1\n"
	w2 := "w2 waits for a/1 (shared, node) " + hostile + " holds a/1 w1 before a/1\n"
	w3 := "w3 waits for other (exclusive, node) idle holds other\n"
	for query, want := range map[string]string{
		"": w1 + w2 + w3 + "false", "?lock=a%2F1": w1 + w2 + "false", "?lock=a/1&limit=2": w1 + w2 + "false", "?lock=a/1&limit=1": w1 + "true",
		"?lock=other": w3 + "false", "?limit=2": w1 + w2 + "true", "?lock=nothing": "false",
	} {
		if got := show(as[api.Waits](t, h.get(t, "/v1/waits"+query), http.StatusOK)); got != want {
			t.Errorf("%q: %s\nwant %s", query, got, want)
		}
	}
	h.release(t, lease)
	h.release(t, granted(t, first))
	granted(t, second)
	h.release(t, other)
	granted(t, apart)
}

func TestBadQueriesOfMoreLists(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []badInput
	for _, list := range []string{"/v1/leases", "/v1/sessions", "/v1/elections"} {
		for query, detail := range map[string]string{
			"x=1": `no parameter "x"`, "limit=0": "1 to 1000", "limit=1001": "1 to 1000", "limit=1.5": "1 to 1000", "cursor=*": "cursor must be", "cursor=AA": "cursor must be",
			"cursor=_w": "cursor must be", "limit=1&limit=1": "limit is there 2 times",
		} {
			inputs = append(inputs, badInput{name: list + "?" + query, method: http.MethodGet, path: list + "?" + query, detail: detail})
		}
	}
	long := strings.Repeat("x", store.OwnerBytesMax+1)
	for path, detail := range map[string]string{
		"/v1/leases?state=free": "state must be running or ended", "/v1/leases?owner_id=" + long: "owner_id has 257 bytes", "/v1/leases?owner_id=%00": "control character",
		"/v1/leases?cursor=eA": "cursor must be", "/v1/leases?cursor=LTEgYQ": "cursor must be", "/v1/leases?prefix=a": `no parameter "prefix"`,
		"/v1/sessions?state=held": "state must be live, ended or expired", "/v1/sessions?owner_id=%FF": "not valid UTF-8", "/v1/sessions?session_id=x": `no parameter "session_id"`,
		"/v1/sessions?cursor=MSB4eA": "the place of a session is hexadecimal", "/v1/elections?prefix=%00": "without NUL", "/v1/elections?state=held": `no parameter "state"`,
	} {
		inputs = append(inputs, badInput{name: path, method: http.MethodGet, path: path, detail: detail})
	}
	inputs = append(inputs, badInput{name: "lock", method: http.MethodGet, path: "/v1/leases?lock=a//b", code: api.CodeInvalidName, detail: "lock"},
		badInput{name: "lock of waits", method: http.MethodGet, path: "/v1/waits?lock=%2F", code: api.CodeInvalidName, detail: "lock"})
	h.refusedAll(t, inputs)
}

// What lists tell of leases and sessions gives nobody the power over them: not in a row, not in a cursor.
func TestListsKeepSecrets(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	secrets := []string{session.SessionID, strings.ReplaceAll(session.SessionID, "-", "")}
	for _, lock := range []string{"a", "b"} {
		secrets = append(secrets, h.acquireAs(t, lock, api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID}).LeaseID)
	}
	term := as[api.Term](t, h.campaign(t, "c", api.CampaignRequest{Candidate: "w", SessionID: &session.SessionID}), http.StatusOK)
	secrets = append(secrets, term.LeaseID)
	for _, path := range []string{
		"/v1/locks", "/v1/locks?sort=expires_at", "/v1/locks?sort=queue", "/v1/locks/a", "/v1/leases", "/v1/leases?state=running", "/v1/sessions", "/v1/elections", "/v1/elections/c", "/v1/waits",
	} {
		mark := "?"
		if strings.Contains(path, mark) {
			mark = "&"
		}
		for _, limit := range []string{"", mark + "limit=1"} {
			if limit != "" && strings.Count(path, "/") > 2 {
				continue
			}
			got := h.get(t, path+limit)
			text := string(got.body) + decodedCursor(t, got.body)
			if got.status != http.StatusOK || containsAny(text, secrets...) || strings.Contains(text, `"lease_id"`) || strings.Contains(text, `"session_id"`) {
				t.Errorf("%s: %d %s", path+limit, got.status, text)
			}
		}
	}
}

// decodedCursor is what the cursor in an answer says, "" if there is none.
func decodedCursor(t *testing.T, body []byte) string {
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
