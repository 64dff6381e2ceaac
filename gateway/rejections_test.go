package gateway

import (
	"context"
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

// recordNow writes what was noted, and nothing later: with its context ended, Run writes once.
func (h *harness) recordNow(t *testing.T) (failed error) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	h.recorder.Run(ended, func(err error) { failed = err })
	return failed
}

func (h *harness) rejections(t *testing.T, query string) api.Rejections {
	t.Helper()
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	return as[api.Rejections](t, h.get(t, "/v1/rejections"+query), http.StatusOK)
}

// zombie is a lease that ended an hour ago, and that another has replaced.
func (h *harness) zombie(t *testing.T, lock string) (zombie, current api.Lease) {
	t.Helper()
	zombie = h.acquire(t, lock, "zombie")
	h.expire(t, zombie)
	return zombie, h.acquire(t, lock, "current")
}

func TestRejectionsTellWhoWasShutOut(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	begun := time.Now().Add(-time.Second).Truncate(time.Millisecond)
	for sequence := range int64(5) {
		refused(t, h.put(t, zombie, sequence+1, "late"), api.CodeTokenStale)
	}
	got := h.rejections(t, "")
	if len(got.Rejections) != 1 {
		t.Fatalf("a hammering zombie is one group, not %+v", got.Rejections)
	}
	r := got.Rejections[0]
	if r.Resource != "job" || r.Key != "k" || r.Code != api.CodeTokenStale || r.Reason != "superseded" || r.Source != "http" || r.Address != "127.0.0.1" {
		t.Errorf("what was rejected: %+v", r)
	}
	if value(r.Token) != zombie.FencingToken || value(r.Sequence) != int64(5) || r.GrantedToken != current.FencingToken || r.LastToken != 0 || r.LastSequence != 0 {
		t.Errorf("the tokens of %+v: presented %v.%v", r, value(r.Token), value(r.Sequence))
	}
	if r.OwnerID != "zombie" || r.Count != 5 || r.FirstAt.Before(begun) || r.LastAt.Before(r.FirstAt.Time) {
		t.Errorf("who it was, and when: %+v", r)
	}
	if r.LateMS == nil || *r.LateMS < time.Hour.Milliseconds() || *r.LateMS > 2*time.Hour.Milliseconds() {
		t.Errorf("late by %v ms, want a little more than an hour", value(r.LateMS))
	}
	refused(t, h.put(t, zombie, 6, "late"), api.CodeTokenStale)
	if again := h.rejections(t, "").Rejections; len(again) != 1 || again[0].Count != 6 || again[0].ID != r.ID || !again[0].FirstAt.Equal(r.FirstAt.Time) {
		t.Errorf("and once more: %+v", again)
	}
}

// Every verdict of the rule is recorded; what is no verdict, and what was admitted, is not.
func TestRejectionsOfEveryKind(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	as[api.WriteResult](t, h.put(t, current, 1, "x"), http.StatusCreated)
	path := recordPath("job", "k")
	refused(t, h.put(t, zombie, 0, "x"), api.CodeTokenStale)
	refused(t, h.send(t, http.MethodDelete, path, ""), api.CodeTokenRequired)
	refused(t, h.send(t, http.MethodPut, path, "x", "Fencing-Token: 9007199254740991"), api.CodeTokenUnknown)
	refused(t, h.send(t, http.MethodPut, path, "x", token(current, 2), "Lease-Id: "+zombie.LeaseID), api.CodeLeaseMismatch)
	refused(t, h.send(t, http.MethodPut, path, "x", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	refused(t, h.transact(t, api.TransactionRequest{Fences: []api.WriteToken{claim(zombie, 1)}, Ops: []api.Op{putOp(zombie, "k", "1")}}), api.CodeTokenStale)
	refused(t, h.send(t, http.MethodDelete, recordPath("job", "none"), "", token(current, 2)), api.CodeNotFound)
	refused(t, h.send(t, http.MethodPut, path, "x", "Fencing-Token: 0"), api.CodeInvalidToken)
	var codes []string
	for _, r := range h.rejections(t, "").Rejections {
		codes = append(codes, fmt.Sprintf("%s by %s %d", r.Code, r.Source, r.Count))
		if (r.Token == nil) != (r.Code == api.CodeTokenRequired) {
			t.Errorf("the token of %+v", r)
		}
	}
	slices.Sort(codes)
	want := "lease_mismatch by http 1, token_required by http 1, token_stale by http 1, token_stale by transaction 1, token_unknown by http 1, version_mismatch by http 1"
	if strings.Join(codes, ", ") != want {
		t.Errorf("recorded are %q, want %q", codes, want)
	}
}

func TestRejectionsAreFound(t *testing.T) {
	h := newHarness(t, Config{})
	const many = 250
	for i := range many {
		refused(t, h.send(t, http.MethodPut, recordPath("jobs/"+strconv.Itoa(i), "k"), "x", "Fencing-Token: 1"), api.CodeTokenUnknown)
	}
	var latest time.Time
	for _, r := range h.rejections(t, "?limit=1000").Rejections {
		if r.LastAt.After(latest) {
			latest = r.LastAt.Time
		}
	}
	between := latest.Add(time.Millisecond).UTC().Format(time.RFC3339Nano) // times are told in whole milliseconds, rounded down
	eventually(t, "the next millisecond", func() bool { return time.Now().After(latest.Add(2 * time.Millisecond)) })
	refused(t, h.send(t, http.MethodPut, recordPath("jobs/7", "k"), "x"), api.CodeTokenRequired)
	resources := func(query string) (found []string, next string) {
		page := h.rejections(t, query)
		for i, r := range page.Rejections {
			if i > 0 && r.ID >= page.Rejections[i-1].ID {
				t.Errorf("%d stands after %d: newest first", r.ID, page.Rejections[i-1].ID)
			}
			found = append(found, r.Resource)
		}
		return found, page.NextCursor
	}
	for _, limit := range []int{1, 100, many + 1, 1000} {
		var found []string
		for _, page := range pages(t, func(cursor string) ([]string, string) { return resources(fmt.Sprintf("?limit=%d%s", limit, cursor)) }) {
			found = append(found, page...)
		}
		if len(found) != many+1 || found[0] != "jobs/7" {
			t.Errorf("by %d there are %d, the newest is %s", limit, len(found), found[0])
		}
	}
	for query, want := range map[string]int{
		"resource=jobs/7": 2, "resource=jobs%2F8": 1, "resource=jobs": 0, "code=token_required": 1, "code=token_stale": 0,
		"resource=jobs/7&code=token_unknown": 1, "since=" + url.QueryEscape(between): 1, "since=2000-01-01T00:00:00Z&resource=jobs/9": 1,
		"since=9999-12-31T23:59:59.999Z": 0, "since=0001-01-01T00:00:00%2B14:00&code=token_required": 1,
	} {
		if found, _ := resources("?limit=1000&" + query); len(found) != want {
			t.Errorf("%s finds %d, want %d", query, len(found), want)
		}
	}
}

// The record follows the verdicts and never changes one: not when it is full, and not when it can't be written.
func TestRecordingChangesNoVerdict(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	h.exec(t, "alter table fence.rejections rename to hidden")
	for sequence := range int64(3) {
		refused(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
		if err := h.recordNow(t); err == nil {
			t.Fatal("the record was written to a table that is not there")
		}
		as[api.WriteResult](t, h.put(t, current, sequence+1, "in time"), map[bool]int{true: http.StatusCreated, false: http.StatusOK}[sequence == 0])
	}
	h.exec(t, "alter table fence.hidden rename to rejections")
	if kept := h.rejections(t, "").Rejections; len(kept) != 1 || kept[0].Count != 3 {
		t.Errorf("of three rejections are kept %+v", kept)
	}

	for h.recorder.Dropped() == 0 {
		h.recorder.Record(&store.RejectedError{Verdict: store.VerdictTokenRequired, Resource: store.Name("other/" + strconv.FormatInt(time.Now().UnixNano(), 36))}, "http", "test")
	}
	dropped := h.recorder.Dropped()
	refused(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	as[api.WriteResult](t, h.put(t, current, 4, "in time"), http.StatusOK)
	if h.recorder.Dropped() != dropped+1 {
		t.Errorf("a full recorder dropped %d, then %d", dropped, h.recorder.Dropped())
	}
}
