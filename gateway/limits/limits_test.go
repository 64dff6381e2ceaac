package limits

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencegate/fencegate/internal/access"
)

// A caller may send a second's requests at once, and then as many as the rate has, however many goroutines ask. Others
// are not affected.
func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{RequestsPerSecond: 100})
		taken := func(c *Caller) (count int) {
			var mu sync.Mutex
			var asking sync.WaitGroup
			for range 4 {
				asking.Go(func() {
					for c.Take() == 0 {
						mu.Lock()
						count++
						mu.Unlock()
					}
				})
			}
			asking.Wait()
			return count
		}
		caller := l.OfAddress("192.0.2.1")
		if got := taken(caller); got != 100 {
			t.Errorf("at once %d requests were taken, want 100", got)
		}
		wait := caller.Take()
		if wait <= 0 || wait > 10*time.Millisecond {
			t.Errorf("the next request may come after %s, want up to 10ms", wait)
		}
		time.Sleep(wait)
		if got := taken(caller); got != 1 {
			t.Errorf("after that time %d requests were taken, want 1", got)
		}
		time.Sleep(time.Hour)
		if got := taken(caller); got != 100 {
			t.Errorf("after an hour %d requests were taken, want 100", got)
		}
		if got := taken(l.OfAddress("192.0.2.2")); got != 100 {
			t.Errorf("of another caller %d requests were taken, want 100", got)
		}
	})
}

// A caller is a principal of one kind, an address, or a /64 of IPv6.
func TestCallers(t *testing.T) {
	t.Parallel()
	l := New(Config{})
	same := [][2]*Caller{
		{l.OfAddress("192.0.2.1"), l.OfAddress("::ffff:192.0.2.1")},
		{l.OfAddress("2001:db8::1"), l.OfAddress("2001:db8::ffff:1%eth0")},
		{l.OfAddress("@"), l.OfAddress("")},
		{l.OfPrincipal(access.New("p", access.Key, nil)), l.OfPrincipal(access.New("p", access.Key, nil))},
		{l.OfPrincipal(access.New("p", access.Token, nil)), l.OfPrincipal(access.New("p", access.Token, nil))},
	}
	for i, pair := range same {
		if pair[0] != pair[1] {
			t.Errorf("pair %d: two callers, want one", i)
		}
		for j := range i {
			if pair[0] == same[j][0] {
				t.Errorf("%d and %d are one caller, want two", i, j)
			}
		}
	}
	if l.OfAddress("2001:db8::1") == l.OfAddress("2001:db8:0:1::1") {
		t.Error("two networks of IPv6 are one caller")
	}
}

// Any number of addresses uses no more memory than callersMax.
func TestCallersAreBounded(t *testing.T) {
	l := New(Config{RequestsPerSecond: 1})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	address := netip.MustParseAddr("10.0.0.0")
	for range 200_000 {
		l.OfAddress(address.String()).Take()
		address = address.Next()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); l.callers.Len() != callersMax || grown > 20<<20 {
		t.Errorf("%d callers are remembered, in %d bytes, want %d in up to 20 MiB", l.callers.Len(), grown, callersMax)
	} else {
		t.Logf("%d bytes a caller", grown/callersMax)
	}
	runtime.KeepAlive(l)
}
