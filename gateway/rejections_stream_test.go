package gateway

import (
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

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
