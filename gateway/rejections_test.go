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

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// rejections records what was noted, and lists it.
func (h *harness) rejections(t testing.TB, query string) api.Rejections {
	t.Helper()
	h.record(t)
	return as[api.Rejections](t, h.get(t, "/v1/rejections"+query), http.StatusOK)
}

// rejectGroups records this many rejections of unknown tokens, each a group of its own, in one commit. A call of
// record_rejections may take 5 s at most, so it makes several.
func (h *harness) rejectGroups(t testing.TB, groups int) {
	t.Helper()
	h.exec(t, `
		select count(*) from generate_series(1, $1, 1000) first, lateral (select least(1000, $1 - first + 1)) part (n),
			lateral fence.record_rejections(
				(select array_agg('jobs/' || i) from generate_series(first, first + n - 1) i), array_fill('k'::text, array[n]),
				array_fill('token_unknown'::text, array[n]), array_fill(''::text, array[n]), array_fill('http'::text, array[n]),
				array_fill('192.0.2.1'::text, array[n]), array_fill(7::bigint, array[n]), array_fill(null::bigint, array[n]),
				array_fill(0::bigint, array[n]), array_fill(0::bigint, array[n]), array_fill(0::bigint, array[n]),
				array_fill(1::bigint, array[n]), array_fill(clock_timestamp(), array[n]),
				array_fill(clock_timestamp(), array[n]))`,
		groups)
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

func TestRejections(t *testing.T) {
	h := newHarness(t, Config{})
	h.sample(t) // what comes before the first sample is in no step
	zombie, current := rejectOfMany(t, h)
	t.Run("filters", func(t *testing.T) { h.filterRejections(t, zombie, current) })
	t.Run("summary", h.summarizeRejections)
	t.Run("by ID", func(t *testing.T) { h.rejectionsByID(t, zombie, current) })
}

// filterRejections checks that a group has the write, the tokens, the owner, the count and the lateness, and that every
// parameter selects what its name says, in lists and summaries.
func (h *harness) filterRejections(t *testing.T, zombie, current api.Lease) {
	t.Helper()
	other := h.rejections(t, "?resource=other").Rejections[0]
	group := h.rejections(t, "?kind=zombie").Rejections[0]
	if group.Resource != "job/1" || group.Key != "k" || group.Code != api.CodeTokenStale || group.Reason != "superseded" ||
		group.Source != "http" || group.Address != "127.0.0.1" || group.OwnerID != "zombie" || group.Count != 2 ||
		value(group.Token) != zombie.FencingToken || value(group.Sequence) != int64(2) || group.GrantedToken != current.FencingToken ||
		group.LastAt.Before(group.FirstAt.Time) || *group.LateMS < time.Hour.Milliseconds() || *group.LateMS > 2*time.Hour.Milliseconds() {
		t.Errorf("the group of the zombie's two writes is %s", encode(group))
	}
	at := url.QueryEscape(other.FirstAt.Format("2006-01-02T15:04:05.000Z"))
	for query, want := range map[string]int{
		"": 4, "resource=job/1": 2, "prefix=job": 3, "code=token_stale": 2, "kind=misuse": 2, "kind=reader": 0,
		"reason=superseded": 1, "source=sql": 0, "owner_id=zombie": 1, "since=" + at: 1, "until=" + at: 3,
		"prefix=job/&code=token_stale&reason=superseded&source=http&owner_id=zombie&until=" + at + "&resource=job/1": 1,
	} {
		listed := len(h.rejections(t, "?"+query).Rejections)
		summary := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary?"+query), http.StatusOK)
		if listed != want || summary.Groups != int64(want) {
			t.Errorf("%s lists %d and counts %d groups, want %d", query, listed, summary.Groups, want)
		}
	}
	for _, r := range h.rejections(t, "").Rejections {
		if by := value(r.SupersededBy); r.Reason == "superseded" && by != current.FencingToken ||
			r.Reason != "superseded" && by != nil {
			t.Errorf("superseded_by is %v in the group %+v", by, r)
		}
	}
}

func (h *harness) summarizeRejections(t *testing.T) {
	t.Helper()
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

// rejectionsByID checks that a rejection has the leases of its writer and of its successor. The kinds are those that
// lists, summaries, the stream's filter and the overview have.
func (h *harness) rejectionsByID(t *testing.T, zombie, current api.Lease) {
	t.Helper()
	path := fmt.Sprintf("/v1/rejections/%d", h.rejections(t, "?kind=zombie").Rejections[0].ID)
	got := as[api.RejectionDetail](t, h.get(t, path), http.StatusOK)
	if got.Rejection.Kind != api.KindZombie || got.Lease == nil || got.Lease.OwnerID != zombie.OwnerID ||
		got.Lease.EndReason != "expired" || got.Successor == nil || got.Successor.FencingToken != current.FencingToken {
		t.Errorf("the zombie's rejection is %s", encode(got))
	}
	path = fmt.Sprintf("/v1/rejections/%d", h.rejections(t, "?kind=numbering").Rejections[0].ID)
	got = as[api.RejectionDetail](t, h.get(t, path), http.StatusOK)
	if got.Rejection.Reason != "reused" || got.Lease == nil || got.Lease.OwnerID != current.OwnerID || got.Successor != nil {
		t.Errorf("the rejection of a used number is %s", encode(got))
	}
	expectProblem(t, h.get(t, "/v1/rejections/999999"), api.CodeNotFound)
	expectProblem(t, h.get(t, "/v1/rejections/ghost"), api.CodeInvalidRequest)
	expectProblem(t, h.get(t, path+"?x=1"), api.CodeInvalidRequest)
	expectProblem(t, h.get(t, "/v1/rejections?kind=ghost"), api.CodeInvalidRequest)

	const want = "map[misuse:2 numbering:1 zombie:2]"
	summary := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary"), http.StatusOK)
	if text := fmt.Sprint(summary.ByKind); text != want {
		t.Errorf("the summary has the kinds %s, want %s", text, want)
	}
	if conflicts := h.rejections(t, "?kind=conflict").Rejections; len(conflicts) != 0 {
		t.Errorf("data conflicts are %+v, want none", conflicts)
	}
	totals, err := h.gateway.Metrics.Totals()
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[store.RejectionKind]int64{}
	for class, writes := range totals.Rejected {
		if writes > 0 {
			byKind[class.Kind] += writes
		}
	}
	if text := fmt.Sprint(byKind); text != want {
		t.Errorf("the gateway has counted the kinds %s, want %s", text, want)
	}
}

// A principal gets the same answer for a rejection on a name that it may not see as for one that does not exist.
func TestRejectionByIDHidesOtherNames(t *testing.T) {
	h, admin := newGuarded(t)
	root, eu := h.by(admin), h.by(h.key(t, "eu", "observe:eu"))
	lease := root.acquire(t, "us/1", "secret-owner")
	expectProblem(t, root.putWith(t, "us/1", token(lease, 1), `If-Match: "7"`), api.CodeVersionMismatch)
	h.record(t)
	list := as[api.Rejections](t, root.get(t, "/v1/rejections"), http.StatusOK)
	there := eu.get(t, fmt.Sprintf("/v1/rejections/%d", list.Rejections[0].ID))
	missing := eu.get(t, "/v1/rejections/999999")
	expectProblem(t, there, api.CodeNotFound)
	expectProblem(t, missing, api.CodeNotFound)
	anonymous := func(got answer) string {
		return strings.NewReplacer(fmt.Sprint(list.Rejections[0].ID), "ID", "999999", "ID").Replace(string(got.body))
	}
	if anonymous(there) != anonymous(missing) {
		t.Errorf("a rejection that exists was answered %s, another one %s", there.body, missing.body)
	}
}

const streamPath = "/v1/rejections/stream"

func (s *stream) nextRejection(t testing.TB) api.Rejection {
	t.Helper()
	return dataOf[api.Rejection](t, s.next(t, api.EventRejection))
}

// position returns the last ID received. The gateway sends one at once.
func (s *stream) position(t testing.TB) string {
	t.Helper()
	await.True(t, "the stream has sent its position", func() bool { return s.lastID.Load() != nil })
	return s.lastID.Load().(string)
}

// reject records a rejected write with an unknown token.
func (h *harness) reject(t testing.TB, resource string) {
	t.Helper()
	expectProblem(t, h.putWith(t, resource, "Fencing-Token: 7"), api.CodeTokenUnknown)
	h.record(t)
}

// feedEnd returns a channel that is closed when the feed that reads rejections now has ended.
func (h *harness) feedEnd(t testing.TB) <-chan struct{} {
	t.Helper()
	ended := h.gateway.rejections.Feed.Ended()
	if ended == nil {
		t.Fatal("no feed reads rejections")
	}
	return ended
}

// Streams at all gateways receive new and changed groups of all gateways.
func TestRejectionStream(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	h.reject(t, "before")
	zombie, current := h.zombie(t, "job")
	streams := []*stream{h.open(t, streamPath), second.open(t, streamPath), second.open(t, streamPath)}
	expectProblem(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	h.record(t)
	listed := h.rejections(t, "?resource=job").Rejections[0]
	for _, s := range streams {
		event := s.next(t, api.EventRejection)
		r := dataOf[api.Rejection](t, event)
		if encode(r) != encode(listed) || value(r.SupersededBy) != current.FencingToken {
			t.Errorf("the event is %+v, want %+v as in the list", r, listed)
		}
		if at := time.UnixMicro(event.number(t)); time.Since(at).Abs() > time.Hour {
			t.Errorf("the ID of the event stands for %s, want about now", at)
		}
	}
	expectProblem(t, second.put(t, zombie, 6, "late"), api.CodeTokenStale)
	second.record(t)
	for _, s := range streams {
		if r := s.nextRejection(t); r.ID != listed.ID || r.Count != 2 || value(r.Sequence) != int64(6) {
			t.Errorf("the second event is %+v, want the same group with the count 2", r)
		}
	}
}

// A stream has only the groups that its filters select.
func TestRejectionStreamFilters(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, _ := h.zombie(t, "job/ä&1")
	streams := map[string]*stream{}
	for _, filter := range []string{
		"resource=" + url.QueryEscape("job/ä&1"), "prefix=job/", "prefix=j&code=token_stale", "owner_id=zombie",
		"code=token_stale&owner_id=zombie",
	} {
		streams[filter] = h.open(t, streamPath+"?"+filter)
	}
	h.reject(t, "other/job")
	h.reject(t, "job")
	expectProblem(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	h.record(t)
	for filter, s := range streams {
		if r := s.nextRejection(t); r.Resource != "job/ä&1" {
			t.Errorf("%s: the first event is %+v, want one of job/ä&1", filter, r)
		}
	}
}

// A stream that is opened again resumes after the last event or position, at any gateway.
func TestRejectionStreamResumes(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	s := h.open(t, streamPath)
	position := s.position(t)
	h.reject(t, "a")
	seen := s.next(t, api.EventRejection).ID
	s.close()
	h.awaitStreams(t, 0)
	h.reject(t, "b")
	for name, again := range map[string]*stream{
		"header":               h.open(t, streamPath+"?resource=b", "Last-Event-ID: "+seen),
		"parameter":            second.open(t, streamPath+"?resource=b&last_event_id="+seen),
		"header and parameter": second.open(t, streamPath+"?resource=b&last_event_id=0", "Last-Event-ID: "+seen),
		"position":             second.open(t, streamPath+"?resource=b", "Last-Event-ID: "+position),
	} {
		if r := again.nextRejection(t); r.Resource != "b" || r.Count != 1 {
			t.Errorf("%s: the event is %+v, want the group of b", name, r)
		}
	}
	whole := second.open(t, streamPath, "Last-Event-ID: "+position)
	if first, then := whole.nextRejection(t), whole.nextRejection(t); first.Resource != "a" || then.Resource != "b" {
		t.Errorf("after the first position the events are %+v and %+v, want a and b", first, then)
	}
	tooOld := strconv.FormatInt(time.Now().Add(-2*store.RejectionsResumable).UnixMicro(), 10)
	for _, id := range []string{"0", tooOld, "9223372036854775807"} {
		missed := h.open(t, streamPath, "Last-Event-ID: "+id).next(t, api.EventMissed)
		at := time.UnixMicro(missed.number(t))
		if time.Since(at).Abs() > time.Hour || dataOf[api.RejectionsMissed](t, missed).Since.IsZero() {
			t.Errorf("after %s the event is %+v, want an ID of about now and since", id, missed)
		}
	}
}

// More groups than a stream can send are reported as missed, at once and after a reconnect.
func TestRejectionStreamMissed(t *testing.T) {
	h := newHarness(t, Config{})
	s, filtered := h.open(t, streamPath), h.open(t, streamPath+"?resource=none")
	position := s.position(t)
	h.rejectGroups(t, store.RejectionsMissedMax+1)
	for _, s := range []*stream{s, filtered} {
		missed := dataOf[api.RejectionsMissed](t, s.next(t, api.EventMissed))
		if at, err := strconv.ParseInt(position, 10, 64); err != nil || missed.Since.After(time.UnixMicro(at)) {
			t.Errorf("missed since %s, want %s or earlier (%v)", missed.Since, position, err)
		}
	}
	h.open(t, streamPath, "Last-Event-ID: "+position).next(t, api.EventMissed)
	// Missed groups are not sent later, but new changes are.
	h.exec(t, "update fence.rejections set changed_at = changed_at - interval '1 minute'")
	h.reject(t, "after")
	for r := (api.Rejection{}); r.Resource != "after"; {
		if event := <-s.events; event.Kind != api.EventMissed {
			r = dataOf[api.Rejection](t, event)
		}
	}
}

// Streams survive a short outage of the database. A longer one ends them. A client that reconnects has lost nothing.
func TestRejectionStreamWithoutDatabase(t *testing.T) {
	h, cluster := newClusterHarness(t, Config{})
	impatient := h.another(t, Config{})
	h.gateway.rejections.Feed.Patience, impatient.gateway.rejections.Feed.Patience = time.Hour, time.Nanosecond
	s, ended := h.open(t, streamPath), impatient.open(t, streamPath)
	h.reject(t, "a")
	s.next(t, api.EventRejection)
	seen := ended.next(t, api.EventRejection).ID

	cluster.Stop()
	h.awaitNoDeadConnection(t)
	ended.endedFor(t, "unavailable")
	for _, headers := range [][]string{nil, {"Last-Event-ID: " + seen}} {
		expectUnavailable(t, impatient.get(t, streamPath, headers...), api.OutcomeNotApplied)
	}
	cluster.Restart()
	h.awaitReady(t)
	h.reject(t, "b")
	if r := s.nextRejection(t); r.Resource != "b" {
		t.Errorf("the open stream received %+v, want the group of b", r)
	}
	impatient.awaitReady(t)
	again := impatient.open(t, streamPath, "Last-Event-ID: "+seen)
	awaitEvent(t, again, api.EventRejection, func(r api.Rejection) bool { return r.Resource == "b" })
	for _, c := range []struct {
		h *harness
		s *stream
	}{{h, s}, {impatient, again}} {
		feedEnded := c.h.feedEnd(t)
		c.s.close()
		<-feedEnded
	}
}
