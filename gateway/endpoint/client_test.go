package endpoint

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

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
