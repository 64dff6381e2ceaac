package endpoint

import (
	"context"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/store"
)

// The address of a client is taken from X-Forwarded-For only as far as trusted proxies wrote it.
func TestAddress(t *testing.T) {
	trusting := Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}}
	for _, c := range []struct {
		name      string
		config    Config
		remote    string
		forwarded []string
		want      string
	}{
		{"no proxy is trusted", Config{}, "10.0.0.1:5", []string{"192.0.2.1"}, "10.0.0.1"},
		{"another proxy", trusting, "192.0.2.9:5", []string{"192.0.2.1"}, "192.0.2.9"},
		{"a trusted proxy", trusting, "10.0.0.1:5", []string{"192.0.2.1"}, "192.0.2.1"},
		{"IPv4 in IPv6", trusting, "[::ffff:10.0.0.1]:5", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"forged before the proxy's own", trusting, "10.0.0.1:5", []string{"198.51.100.7", "192.0.2.1"}, "192.0.2.1"},
		{"two proxies", trusting, "10.0.0.1:5", []string{"198.51.100.7, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"all are trusted", trusting, "10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"no address", trusting, "10.0.0.1:5", []string{"<script>, 10.0.0.2"}, "10.0.0.2"},
		{"a zone", trusting, "10.0.0.1:5", []string{"fe80::1%<b>"}, "fe80::1"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.remote
		for _, line := range c.forwarded {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := (&Server{Config: c.config}).Address(r); got != c.want {
			t.Errorf("%s: the address is %s, want %s", c.name, got, c.want)
		}
	}
}

// A subscriber that does not keep up is ended, and the others go on.
func TestBroadcastEndsSlowSubscribers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	productions := make(chan *Production[int], 1)
	const behindMax = 16
	b := &Broadcast[int]{Until: ctx, BehindMax: behindMax, Replay: true,
		Produce: func(ctx context.Context, to *Production[int]) error {
			productions <- to
			<-ctx.Done()
			return ctx.Err()
		}}
	slow, quick := b.Subscribe(), b.Subscribe()
	to := <-productions
	for i := range behindMax + 1 {
		to.Publish(i)
		if event, err := quick.Next(ctx); err != nil || event != i {
			t.Fatalf("event %d is %v, %v", i, event, err)
		}
	}
	for i := range behindMax {
		if event, err := slow.Next(ctx); err != nil || event != i {
			t.Fatalf("event %d of the slow subscriber is %v, %v", i, event, err)
		}
	}
	if _, err := slow.Next(ctx); err != store.ErrSlowReader { //nolint:errorlint // it is just this one
		t.Errorf("the slow subscriber ended with %v, want %v", err, store.ErrSlowReader)
	}
	late := b.Subscribe()
	if event, err := late.Next(ctx); err != nil || event != behindMax {
		t.Errorf("a late subscriber gets %v, %v, want the last event, %d", event, err, behindMax)
	}
	for _, s := range []*Subscriber[int]{slow, quick, late} {
		s.Leave()
	}
	b.running.Wait()
	to.Publish(99)
	again := b.Subscribe()
	defer again.Leave()
	if _, waits, _, err := again.Pending(); waits || err != nil {
		t.Errorf("a subscriber of the next run gets an event of the run before; error %v", err)
	}
}

// Contexts of a shared deadline leave at least the time requested, and at most a sixteenth more. They end with their
// parent.
func TestSharedDeadline(t *testing.T) {
	t.Parallel()
	const least = 320 * time.Millisecond
	parent, end := context.WithCancel(t.Context())
	var shared sharedDeadline
	shared.within(parent, least)

	begun := time.Now()
	first, again := shared.context(), shared.context()
	deadline, _ := first.Deadline()
	if deadline.Before(begun.Add(least)) || deadline.After(time.Now().Add(least+least/16)) {
		t.Errorf("the first context has %s, want %s or a little more", deadline.Sub(begun), least)
	}
	if next, _ := again.Deadline(); first != again && !next.After(deadline) {
		t.Error("two contexts taken together are different")
	}
	for time.Since(begun) < 2*least {
		now := time.Now()
		deadline, _ := shared.context().Deadline()
		if deadline.Before(now.Add(least)) {
			t.Fatalf("a context taken %s later has %s, want at least %s", now.Sub(begun), deadline.Sub(now), least)
		}
	}
	if <-first.Done(); !errors.Is(context.Cause(first), context.DeadlineExceeded) {
		t.Errorf("the context ended with %v, want DeadlineExceeded", context.Cause(first))
	}
	last := shared.context()
	end()
	if <-last.Done(); !errors.Is(last.Err(), context.Canceled) {
		t.Errorf("the context ended with %v after its parent, want Canceled", last.Err())
	}
}

// The work on a request has the RequestTimeout, or a sixteenth more, and the span of the request, also one that is not
// sampled. It goes on when the client has left, and ends with the server.
func TestWork(t *testing.T) {
	t.Parallel()
	for name, ratio := range map[string]float64{"sampled": 1, "not sampled": 0} {
		_, provider := otlptest.Start(t, ratio)
		g := NewServer(Config{RequestTimeout: time.Hour, Tracing: store.Tracing{Provider: provider}}, metrics.New("test", CodeOf))
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		ctx, leave := context.WithCancel(ctx)
		leave()
		work := g.Work((&http.Request{}).WithContext(ctx))
		deadline, _ := work.Deadline()
		if left := time.Until(deadline); work.Err() != nil || left < 59*time.Minute || left > time.Hour+time.Hour/16 {
			t.Errorf("%s: the work has %s and the error %v, want an hour or a little more, and none", name, left, work.Err())
		}
		if got := trace.SpanContextFromContext(work); !got.IsValid() || !got.Equal(span.SpanContext()) {
			t.Errorf("%s: the work has the span %v, want that of the request", name, got)
		}
		g.CutOff()
		if !errors.Is(work.Err(), context.Canceled) {
			t.Errorf("%s: the work has the error %v after the end of the server, want canceled", name, work.Err())
		}
		span.End()
	}
}

// The delay doubles with each refusal after the free ones, up to its maximum.
func TestRefusalDelays(t *testing.T) {
	d := NewRefusalDelays(t.Context(), time.Second, nil)
	for refusals, want := range map[uint64]time.Duration{
		1: 0, RefusalsFree: 0, RefusalsFree + 1: RefusalDelayMin, RefusalsFree + 2: 2 * RefusalDelayMin,
		RefusalsFree + 6: time.Second, 1 << 16: time.Second,
	} {
		if got := d.after(refusals); got != want {
			t.Errorf("refusal %d is delayed by %s, want %s", refusals, got, want)
		}
	}
}

// CutRecord finds the same names as the regular expression of its path.
func FuzzRecordRoute(f *testing.F) {
	for _, path := range []string{
		"/v1/resources/a/records/b", "/v1/resources/a/records/records/b", "/v1/resources/a/records/b/records/c",
		"/v1/resources/records/b", "/v1/resources//records/", "/v1/resources/a/records", "/v1/resources/a/fence",
		"/v1/resources/a/b/records/c/d", "/v1/resources/a\n/records/\nb", "/v1/resources/\xff/records/k\x00",
		"/v1/locks/v1/resources/a/records/b", "/v1/resources/a/records//", "/v1/resources/records/records/records/",
		"/v1/resources/./records/..", "v1/resources/a/records/b", "", "/v1/resources/", "/v1/resources/records/",
	} {
		f.Add(path)
	}
	long := mux.NewRouter().SkipClean(true)
	long.Path("/v1/resources/{resource:(?s:.*)}/records/{key:(?s:.*)}").Methods("PUT")
	f.Fuzz(func(t *testing.T, path string) {
		request := &http.Request{Method: http.MethodPut, URL: &url.URL{Path: path}}
		var want mux.RouteMatch
		wanted := long.Match(request, &want)
		resource, key, matched := CutRecord(path)
		if matched != wanted || resource != want.Vars["resource"] || key != want.Vars["key"] {
			t.Errorf("%q: CutRecord found %v %q %q, want %v %q", path, matched, resource, key, wanted, want.Vars)
		}
		if matched && (PathVariable(request, "resource") != resource || PathVariable(request, "key") != key) {
			t.Errorf("%q: PathVariable returned other names than CutRecord, %q and %q", path, resource, key)
		}
	})
}

// ParseETag accepts the texts that etag returns, and no others.
func FuzzETag(f *testing.F) {
	for _, text := range []string{
		`"1"`, `"7"`, `"9223372036854775807"`, `"9223372036854775808"`, `"0"`, `"01"`, `"-1"`, `"+1"`, `W/"1"`, `""`, `"`, ``,
		` "1" `, "*", `"1", "2"`, `"1e3"`, "\"1\"\u0085", `"१"`,
	} {
		f.Add(text)
	}
	reference := regexp.MustCompile(`^"([1-9][0-9]*)"$`)
	f.Fuzz(func(t *testing.T, text string) {
		version, ok := ParseETag(text)
		match := reference.FindStringSubmatch(strings.TrimSpace(text))
		want := match != nil
		if want {
			number, _ := new(big.Int).SetString(match[1], 10)
			want = number.IsInt64()
		}
		if ok != want {
			t.Fatalf("%q is an ETag: %v, want %v", text, ok, want)
		}
		if ok && ETag(version) != strings.TrimSpace(text) {
			t.Errorf("%q is the version %d, whose ETag is %s", text, version, ETag(version))
		}
		if ok && !MatchesNone(http.Header{"If-None-Match": {text}}, ETag(version)) {
			t.Errorf("If-None-Match: %s does not match version %d", text, version)
		}
	})
}
