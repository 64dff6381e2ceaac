// Package limits bounds what one caller may ask of a gateway: requests a second, acquires that wait, open streams.
//
// A caller is a principal; without authentication, an address. The addresses of a /64 of IPv6 are one caller: one
// machine has all of them. At most callersMax callers are remembered, some 330 bytes each. The one that was seen least
// recently is forgotten, and begins anew: an attacker with that many addresses gains no more than from its addresses.
package limits

import (
	"container/list"
	"net/netip"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/fencegate/fencegate/internal/access"
)

const callersMax = 1 << 15

// Config is what each caller may have. 0: any number.
type Config struct {
	RequestsPerSecond int // also the most at once after a pause; up to 1,000,000
	Waiting           int // acquires that wait
	Streams           int // open event streams
}

// Limits are those of all callers. They are safe for concurrent use.
type Limits struct {
	config  Config
	began   time.Time
	callers *lru.Cache[identity, *Caller]
}

// identity is a principal or a network.
type identity struct {
	kind    access.Kind
	name    string
	network netip.Prefix
}

// New returns Limits without callers.
func New(config Config) *Limits {
	callers, err := lru.New[identity, *Caller](callersMax)
	if err != nil { // the size is negative
		panic(err)
	}
	return &Limits{config: config, began: time.Now(), callers: callers}
}

// OfPrincipal returns the caller that a principal is.
func (l *Limits) OfPrincipal(principal *access.Principal) *Caller {
	return l.of(identity{kind: principal.Kind, name: principal.Name})
}

// OfAddress returns the caller at an address. Texts that are no address are one caller.
func (l *Limits) OfAddress(text string) *Caller { return l.of(identity{network: Network(text)}) }

// Network returns the address of IPv4, or the /64 of IPv6; the zero Prefix for what is no address.
func Network(text string) netip.Prefix {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	address = address.Unmap().WithZone("")
	bits := 32
	if address.Is6() {
		bits = 64
	}
	network, _ := address.Prefix(bits)
	return network
}

func (l *Limits) of(key identity) *Caller {
	if known, ok := l.callers.Get(key); ok {
		return known
	}
	caller := &Caller{limits: l}
	caller.Waiting.max, caller.Streams.max = int64(l.config.Waiting), int64(l.config.Streams)
	if known, ok, _ := l.callers.PeekOrAdd(key, caller); ok {
		return known
	}
	return caller
}

// Caller is what one caller uses. It is safe for concurrent use.
type Caller struct {
	Waiting, Streams Slots
	Bodies           Bodies

	limits *Limits
	// paid is the time until which its requests are accounted for, in nanoseconds since Limits were made: each takes a
	// share of a second. It may be a second ahead of the clock, and further by requests that count as many.
	paid atomic.Int64
}

// Take counts a request and returns 0; or it counts nothing, and returns after which time it would.
func (c *Caller) Take() (wait time.Duration) { return c.TakeMany(1) }

// TakeMany is Take of a request that counts as many. There must be room for one of them, and later requests wait for
// the others: otherwise a great one could starve.
func (c *Caller) TakeMany(requests int) (wait time.Duration) {
	rate := int64(c.limits.config.RequestsPerSecond)
	if rate == 0 {
		return 0
	}
	now := int64(time.Since(c.limits.began))
	for {
		was := c.paid.Load()
		share := int64(time.Second) / rate
		paid := max(was, now)
		if ahead := time.Duration(paid + share - now); ahead > time.Second {
			return ahead - time.Second
		}
		if c.paid.CompareAndSwap(was, paid+int64(requests)*share) {
			return 0
		}
	}
}

// Bodies are the bodies of requests that use memory, of one caller or of all. Their user guards them.
type Bodies struct {
	Bytes    int64
	Arriving list.List // the one that grew last is at the back
}

// Slots count what lasts.
type Slots struct {
	used atomic.Int64
	max  int64 // 0: any number
}

// Enter takes a slot and reports whether there was one. Leave must be called in both cases.
func (s *Slots) Enter() bool {
	used := s.used.Add(1)
	return s.max == 0 || used <= s.max
}

// Leave gives back the slot.
func (s *Slots) Leave() { s.used.Add(-1) }
