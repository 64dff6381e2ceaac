package staged

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
)

// RedlockClock shows a lock of Redlock that is granted twice, as in Kleppmann's analysis of it. Servers 1, 2 and 3 grant
// the lock to A while 4 and 5 can't be reached. The clock of server 3 jumps, so the lease of A expires there. Servers 3, 4
// and 5 grant the lock to B while 1 and 2 can't be reached.
type RedlockClock struct {
	demo.Config

	// Libfaketime is the library by which a clock is shifted. Default: where Debian, Fedora and others install it.
	Libfaketime string
}

// ErrNoFaketime says that libfaketime is not installed.
var ErrNoFaketime = errors.New("libfaketime was not found (Debian, Fedora: libfaketime); --libfaketime names the file")

// redlockTTL is the longest TTL of the leases, too: for so long, the servers do not vote after their start.
const redlockTTL = 6 * time.Second

// Run runs the demo. The outcome is that of [demo.Zombie.Run]. It returns ErrNoFaketime without libfaketime, and
// [redis.ErrNoProgram] without Redis.
func (d RedlockClock) Run(ctx context.Context) error {
	library, err := d.library()
	if err != nil {
		return err
	}
	return d.Config.Run(ctx, &clockJump{library: library})
}

func (d RedlockClock) library() (string, error) {
	patterns := []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1",
		"/usr/local/lib/faketime/libfaketimeMT.so.1"}
	if d.Libfaketime != "" {
		patterns = []string{d.Libfaketime}
	}
	for _, pattern := range patterns {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", ErrNoFaketime
}

type clockJump struct {
	library string
	servers [5]clockServer
	begun   bool
}

// clockServer is a Redis whose clock can be shifted. The gateway reaches it by a relay.
type clockServer struct {
	*redis.Process

	relay *network.Relay
	name  string
	shift time.Duration // of its clock
}

func (c *clockJump) Serve(ctx context.Context, print func(demo.Event)) (flags []string, err error) {
	print(demo.Event{Event: "servers", Text: "the leases are kept in a majority of five Redis servers (Redlock)"})
	var urls []string
	for i := range c.servers {
		if err := c.startServer(ctx, i); err != nil {
			return nil, err
		}
		urls = append(urls, "redis://"+c.servers[i].relay.Address())
	}
	return []string{"--leases", "redlock", "--redlock-urls", strings.Join(urls, ","), "--redlock-ttl-max",
		redlockTTL.String(), "--redis-timeout", "500ms"}, nil
}

func (c *clockJump) startServer(ctx context.Context, i int) (err error) {
	s := &c.servers[i]
	s.name = fmt.Sprintf("server %d", i+1)
	s.Process, err = redis.Run(ctx, redis.Config{Libfaketime: c.library})
	if err == nil {
		s.relay, err = network.NewRelay(ctx, "tcp", s.Address())
	}
	return err
}

// Prepare cuts off servers 4 and 5.
func (c *clockJump) Prepare(ctx context.Context, r *demo.Round) error {
	r.A.TTL, r.B.TTL, r.A.Told = redlockTTL, redlockTTL, true
	if !c.begun {
		if err := c.untilVoting(ctx, r); err != nil {
			return err
		}
	}
	c.begun = true
	c.reach(0, 3)
	r.Tell("", demo.Event{Event: "cut", Text: "servers 4 and 5 can't be reached"})
	return nil
}

// reach lets the servers from one index up to another be reached, and no others.
func (c *clockJump) reach(from, to int) {
	for i := range c.servers {
		if from <= i && i < to {
			c.servers[i].relay.Pass()
		} else {
			c.servers[i].relay.Cut()
		}
	}
}

// untilVoting waits until all servers vote, which they do redlockTTL after the gateway has marked them.
func (c *clockJump) untilVoting(ctx context.Context, r *demo.Round) error {
	r.Tell("", demo.Event{Event: "waiting", Text: fmt.Sprintf(
		"the servers were just started, and do not vote for %s: they might have lost leases", redlockTTL)})
	return until(ctx, "all servers vote", func(ctx context.Context) (bool, error) {
		for i := range c.servers {
			marker, err := c.servers[i].Do(ctx, "GET", "fencegate//server")
			if err != nil {
				return false, err
			}
			_, text, _ := strings.Cut(marker, " ")
			since, err := strconv.ParseInt(text, 10, 64)
			if err != nil || time.Since(time.UnixMilli(since)) < redlockTTL+redlockTTL/50 {
				return false, err
			}
		}
		return true, nil
	})
}

// Strike lets the clock of server 3 jump, and cuts off servers 1 and 2 instead of 4 and 5.
func (c *clockJump) Strike(ctx context.Context, r *demo.Round) error {
	for i := range 3 {
		if _, err := lookAt(ctx, r, c.servers[i].name, c.servers[i].Process); err != nil {
			return err
		}
	}
	third := &c.servers[2]
	third.shift += redlockTTL
	if err := third.ShiftClock(third.shift); err != nil {
		return err
	}
	r.Tell("", demo.Event{Event: "jumped", Text: fmt.Sprintf("the clock of server 3 jumps forward by %s", redlockTTL)})
	if _, err := lookAt(ctx, r, third.name, third.Process); err != nil {
		return err
	}
	c.reach(2, len(c.servers))
	r.Tell("", demo.Event{Event: "cut", Text: "servers 4 and 5 can be reached again, 1 and 2 can't"})
	return nil
}

// Taken shows that servers 1 and 2 still have the lease of A, and the others that of B.
func (c *clockJump) Taken(ctx context.Context, r *demo.Round) error {
	var leases [len(c.servers)]*redisLease
	for i := range c.servers {
		var err error
		if leases[i], err = lookAt(ctx, r, c.servers[i].name, c.servers[i].Process); err != nil {
			return err
		}
	}
	if leases[0] == nil || leases[1] == nil {
		return errTooSlow
	}
	return checkOverlap(r, leases[0], leases[2])
}

func (c *clockJump) Heal(_ context.Context, r *demo.Round) error { return r.ReleaseA() }

func (c *clockJump) Stop() {
	for _, server := range c.servers {
		if server.relay != nil {
			server.relay.Close()
		}
		if server.Process != nil {
			server.Close()
		}
	}
}
