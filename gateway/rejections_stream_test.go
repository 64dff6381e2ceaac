package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

const streamPath = "/v1/rejections/stream"

func (s *stream) nextRejection(t testing.TB) api.Rejection {
	t.Helper()
	return dataOf[api.Rejection](t, s.next(t, api.EventRejection))
}

// position is the last id that came, which is there at once.
func (s *stream) position(t testing.TB) string {
	t.Helper()
	eventually(t, "the stream says where it is", func() bool { return s.lastID.Load() != nil })
	return s.lastID.Load().(string)
}

// reject has a write with an unknown token refused and recorded.
func (h *harness) reject(t *testing.T, resource string, token int64) {
	t.Helper()
	refused(t, h.send(t, http.MethodPut, recordPath(resource, "k"), "x", fmt.Sprintf("Fencing-Token: %d", token)), api.CodeTokenUnknown)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
}

// Rejections of all gateways are told at all of them, when they are new and when they change.
func TestRejectionStream(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	h.reject(t, "before", 7)
	zombie, current := h.zombie(t, "job")
	streams := []*stream{h.open(t, streamPath), second.open(t, streamPath), second.open(t, streamPath)}
	refused(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	listed := h.rejections(t, "?resource=job").Rejections[0]
	for _, s := range streams {
		event := s.next(t, api.EventRejection)
		r := dataOf[api.Rejection](t, event)
		if encode(r) != encode(listed) || value(r.SupersededBy) != current.FencingToken {
			t.Errorf("told is %+v, listed %+v", r, listed)
		}
		if at := time.UnixMicro(event.number(t)); time.Since(at).Abs() > time.Minute {
			t.Errorf("its id is of %s", at)
		}
	}
	refused(t, second.put(t, zombie, 6, "late"), api.CodeTokenStale)
	if err := second.recordNow(t); err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		if r := s.nextRejection(t); r.ID != listed.ID || r.Count != 2 || value(r.Sequence) != int64(6) {
			t.Errorf("then is told %+v", r)
		}
	}
}

// A stream tells what its filters select, and nothing else.
func TestRejectionStreamFilters(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, _ := h.zombie(t, "job/ä&1")
	streams := map[string]*stream{}
	for _, filter := range []string{
		"resource=" + url.QueryEscape("job/ä&1"), "prefix=job/", "prefix=j&code=token_stale", "owner_id=zombie", "code=token_stale&owner_id=zombie",
	} {
		streams[filter] = h.open(t, streamPath+"?"+filter)
	}
	h.reject(t, "other/job", 7)
	h.reject(t, "job", 7)
	refused(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	for filter, s := range streams {
		if r := s.nextRejection(t); r.Resource != "job/ä&1" {
			t.Errorf("%s: first is told %+v", filter, r)
		}
	}
}

// Whoever comes back goes on where it was, at any gateway, whether an event or only a position was the last that it heard.
func TestRejectionStreamResumes(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	s := h.open(t, streamPath)
	position := s.position(t)
	h.reject(t, "a", 7)
	seen := s.next(t, api.EventRejection).id
	s.close()
	h.awaitStreams(t, 0)
	h.reject(t, "b", 7)
	for name, again := range map[string]*stream{
		"header":               h.open(t, streamPath+"?resource=b", "Last-Event-ID: "+seen),
		"parameter":            second.open(t, streamPath+"?resource=b&last_event_id="+seen),
		"header and parameter": second.open(t, streamPath+"?resource=b&last_event_id=0", "Last-Event-ID: "+seen),
		"position":             second.open(t, streamPath+"?resource=b", "Last-Event-ID: "+position),
	} {
		if r := again.nextRejection(t); r.Resource != "b" || r.Count != 1 {
			t.Errorf("%s: told is %+v", name, r)
		}
	}
	whole := second.open(t, streamPath, "Last-Event-ID: "+position)
	if first, then := whole.nextRejection(t), whole.nextRejection(t); first.Resource != "a" || then.Resource != "b" {
		t.Errorf("from the beginning come %+v and %+v", first, then)
	}
	for _, id := range []string{"0", strconv.FormatInt(time.Now().Add(-2*store.RejectionsResumable).UnixMicro(), 10), "9223372036854775807"} {
		missed := h.open(t, streamPath, "Last-Event-ID: "+id).next(t, api.EventMissed)
		if at := time.UnixMicro(missed.number(t)); time.Since(at).Abs() > time.Minute || dataOf[api.RejectionsMissed](t, missed).Since.IsZero() {
			t.Errorf("after %s comes %+v", id, missed)
		}
	}
}

// A stream on which nothing comes says until when nothing was: it shows that it lives, and whoever heard that goes on there.
func TestRejectionStreamIsKeptAlive(t *testing.T) {
	const timeout = time.Second
	h := newTimed(t, Config{KeepAlive: 100 * time.Millisecond}, timeout, time.Minute)
	s := h.open(t, streamPath+"?resource=none")
	first := s.position(t)
	h.reject(t, "other", 7)
	eventually(t, "the position moves past what is not told", func() bool { return s.position(t) > first && len(s.comments) > 0 })
	for until := time.Now().Add(2 * timeout); time.Now().Before(until); {
		select {
		case <-s.comments:
		case <-time.After(time.Minute):
			t.Fatal("nothing shows that the stream lives")
		}
	}
}

// A storm of more groups than can be told is told as missed, at once and after it.
func TestRejectionStreamMissed(t *testing.T) {
	h := newHarness(t, Config{})
	s, filtered := h.open(t, streamPath), h.open(t, streamPath+"?resource=none")
	position := s.position(t)
	h.rejectStories(t, store.RejectionsMissedMax+1)
	for _, s := range []*stream{s, filtered} {
		missed := dataOf[api.RejectionsMissed](t, s.next(t, api.EventMissed))
		if at, err := strconv.ParseInt(position, 10, 64); err != nil || missed.Since.After(time.UnixMicro(at)) {
			t.Errorf("missed is what came after %s, begun at %s (%v)", missed.Since, position, err)
		}
	}
	h.open(t, streamPath, "Last-Event-ID: "+position).next(t, api.EventMissed)
	// What is told as missed is not told again when there is time for it, but what changes is.
	h.exec(t, "update fence.rejections set changed_at = changed_at - interval '1 minute'")
	h.reject(t, "after", 7)
	for r := (api.Rejection{}); r.Resource != "after"; {
		if event := <-s.events; event.kind != api.EventMissed {
			r = dataOf[api.Rejection](t, event)
		}
	}
}

// Streams of rejections count among all streams of events.
func TestRejectionStreamsMax(t *testing.T) {
	h := newHarness(t, Config{WatchesMax: 1})
	s := h.open(t, streamPath)
	h.awaitStreams(t, 1)
	if problem := unavailable(t, h.get(t, streamPath), api.OutcomeNotApplied); !strings.Contains(problem.Detail, "--watches-max") {
		t.Errorf("beyond the bound: %s", problem.Detail)
	}
	s.close()
	h.awaitStreams(t, 0)
	h.open(t, streamPath).close()
}

// fillRejections changes that many groups, with long names.
func (h *harness) fillRejections(t *testing.T, groups int) {
	t.Helper()
	h.exec(t, `insert into fence.rejections as r (resource, key, code, reason, source, address, fencing_token, granted_token, last_token, last_sequence,
			count, first_at, last_at)
		select repeat('r', 500) || n, repeat('k', 500), 'token_unknown', '', 'http', '', 7, 0, 0, 0, 1, clock_timestamp(), clock_timestamp()
		from generate_series(1, $1) n
		on conflict (resource, fencing_token, code, reason, source, address) do update set count = r.count + 1, changed_at = clock_timestamp()`, groups)
}

// Who reads too slowly is cut off and told so, and holds up nobody else.
func TestRejectionStreamSlowReader(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		// Not held against the description: there is too much of it.
		h := newGateway(t, Config{}, store.Config{DatabaseURL: pgtest.Migrated(t)})
		h.gateway.eventTimeout, h.gateway.rejected.interval, h.gateway.rejected.behindMax = time.Hour, 10*time.Millisecond, 4
		h.client = serve(t, h.gateway)
		fast := h.open(t, streamPath)
		slowly := client{base: h.base, http: newHTTPClient(t, http2)}
		slow := slowly.openUnread(t, streamPath)
		h.awaitStreams(t, 2)
		const groups = 900
		rounds := 0
		eventually(t, "the slow reader is given up", func() bool {
			rounds++
			h.fillRejections(t, groups)
			for told := 0; told < groups; {
				if r := fast.nextRejection(t); r.Count == int64(rounds) {
					told++
				}
			}
			h.gateway.rejected.mu.Lock()
			defer h.gateway.rejected.mu.Unlock()
			return len(h.gateway.rejected.current.subscribers) == 1
		})
		slow.read(t)
		heard := 0
		for event := range slow.events {
			if event.kind == api.EventEnd {
				if end := dataOf[api.WatchEnd](t, event); end.Reason != "slow_reader" {
					t.Errorf("it ended for %s", end.Reason)
				}
				break
			}
			heard++
		}
		if slow.over(t); heard == 0 || heard >= rounds*groups {
			t.Errorf("of %d events it heard %d", rounds*groups, heard)
		}
		h.awaitStreams(t, 1)
	}
}

// Who does not read at all is not waited for.
func TestRejectionStreamUnread(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newTimed(t, Config{}, time.Minute, 300*time.Millisecond)
		h.gateway.rejected.interval = 10 * time.Millisecond
		unread := client{base: h.base, http: newHTTPClient(t, http2)}
		unread.openUnread(t, streamPath)
		h.awaitStreams(t, 1)
		eventually(t, "the stream is given up", func() bool {
			h.fillRejections(t, 900)
			metrics, _ := h.scrape(t)
			return metrics.value("fencegate_open_watches") == 0
		})
		h.awaitNoFeed(t)
	}
}

// awaitNoFeed waits until nothing reads changes for anybody.
func (h *harness) awaitNoFeed(t *testing.T) {
	t.Helper()
	eventually(t, "nothing follows the rejections", func() bool {
		stacks := make([]byte, 8<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "rejectionFeed).run")
	})
}

// A gateway that ends says so on its streams, and leaves nothing behind.
func TestServeEndsRejectionStreams(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, s, _ := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		streams := []*stream{h.open(t, streamPath), h.open(t, streamPath+"?resource=job")}
		streams[0].position(t)
		if err := s.end(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		for _, stream := range streams {
			stream.endedFor(t, "shutdown")
		}
		h.awaitNoFeed(t)
	}
}

// Streams live through a short absence of the database. When it is away for longer they end, and whoever comes back has lost nothing.
func TestRejectionStreamWithoutDatabase(t *testing.T) {
	cluster := pgtest.NewCluster(t)
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: cluster.URL()})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	impatient := h.another(t, Config{})
	h.gateway.rejected.patience, impatient.gateway.rejected.patience = time.Hour, time.Nanosecond
	s, ended := h.open(t, streamPath), impatient.open(t, streamPath)
	h.reject(t, "a", 7)
	s.next(t, api.EventRejection)
	seen := ended.next(t, api.EventRejection).id

	cluster.Stop()
	h.awaitNoDeadConnection(t)
	ended.endedFor(t, "unavailable")
	unavailable(t, impatient.get(t, streamPath), api.OutcomeNotApplied)
	unavailable(t, impatient.get(t, streamPath, "Last-Event-ID: "+seen), api.OutcomeNotApplied)
	cluster.Restart()
	h.awaitReady(t)
	h.reject(t, "b", 7)
	if r := s.nextRejection(t); r.Resource != "b" {
		t.Errorf("to whom was patient is told %+v", r)
	}
	impatient.awaitReady(t)
	again := impatient.open(t, streamPath, "Last-Event-ID: "+seen)
	for r := (api.Rejection{}); r.Resource != "b"; {
		r = again.nextRejection(t)
	}
	s.close()
	again.close()
	h.awaitNoFeed(t)
}
