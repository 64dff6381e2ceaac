package load

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
)

// client acquires, writes, and lets go, or does not.
type client struct {
	run    *run
	number int
	name   string
	random *rand.Rand
	// acquires is how many it has sent.
	acquires int
	// working ends when no new work is to be begun, sending when nothing more is to be sent.
	working, sending context.Context
}

// held is a lease that the client believes to hold.
type held struct {
	lock     *lock
	owner    string
	token    int64
	id       uuid.UUID
	shared   bool
	gone     bool // an answer said that the lease is lost
	sequence int64
	// beat is when it was granted or renewed, by this process's clock, when the answer came.
	beat time.Time
	ttl  time.Duration
}

func (c *client) work() {
	for c.working.Err() == nil {
		l := c.run.slots[c.random.IntN(len(c.run.slots))].enter()
		if h := c.acquire(l, c.chance(c.run.habits.shared)); h == nil {
			c.pause(time.Duration(2+c.random.IntN(20)) * time.Millisecond)
		} else if h.shared {
			c.share(h)
		} else {
			c.hold(h)
		}
		if l.leave() {
			c.finish(l)
		}
	}
}

// hold works under an exclusive lease, and ends it in one of the ways in which leases end.
func (c *client) hold(h *held) {
	if c.chance(c.run.habits.reading) {
		c.readAll(h.lock)
	}
	for range 1 + c.random.IntN(c.run.habits.writesMax) {
		if !c.write(h) {
			break
		}
		if c.chance(c.run.habits.renewing) {
			c.renew(h)
		}
	}
	switch {
	case h.gone:
	case c.chance(c.run.habits.long):
		c.stay(h)
		c.release(h)
	case c.chance(c.run.habits.freezing):
		c.freeze(h)
	case c.chance(c.run.habits.abandoned):
		c.run.tally.count(func(n *Counts) { n.Abandoned++ })
	default:
		c.release(h)
	}
	if c.chance(c.run.habits.reading) {
		c.read(h.lock, c.random.IntN(keys))
	}
}

// share is what a reader does, and what it must not be able to do.
func (c *client) share(h *held) {
	c.readAll(h.lock)
	if c.chance(c.run.habits.reading) {
		c.write(h)
	}
	c.pause(time.Duration(c.random.IntN(20)) * time.Millisecond)
	if c.chance(c.run.habits.reading) {
		c.renew(h)
	}
	if c.chance(c.run.habits.abandoned) {
		c.run.tally.count(func(n *Counts) { n.Abandoned++ })
		return
	}
	c.release(h)
}

// stay holds a lease for longer than its TTL, by heartbeats, and writes between them.
func (c *client) stay(h *held) {
	for range 3 + c.random.IntN(5) {
		c.pause(h.ttl / 3)
		if !c.renew(h) || !c.write(h) {
			return
		}
	}
}

// freeze pauses past the lease's TTL, then writes as if nothing had happened: a zombie.
func (c *client) freeze(h *held) {
	left := h.ttl - time.Since(h.beat)
	c.pause(left + time.Duration(c.random.IntN(300))*time.Millisecond)
	if c.working.Err() != nil {
		return
	}
	late := c.write(h)
	c.run.tally.count(func(n *Counts) {
		n.Freezes++
		if late {
			n.LateAdmitted++
		} else if h.gone {
			n.ZombiesShutOut++
		}
	})
	c.renew(h)
	if c.chance(50) {
		c.release(h)
	}
}

// readAll reads the records of a resource, and reports whether all were answered.
func (c *client) readAll(l *lock) bool {
	for key := range keys {
		if !c.read(l, key) {
			return false
		}
	}
	return true
}

// read reads a record until that is answered, and reports whether it was.
func (c *client) read(l *lock, key int) bool {
	for c.sending.Err() == nil {
		answer, err := c.send(opRead, spec.Op{Kind: spec.ReadRecord, Name: l.name, Key: keyName(key)}, false)
		if err == nil || answer.Code == spec.CodeNotFound {
			return true
		}
		if !c.unserved(err) {
			return false
		}
	}
	return false
}

func (c *client) gateway() *lockclient.API {
	return c.run.gateway(c.random)
}

// upTo draws a length below one.
func (c *client) upTo(most time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(most)))
}

func (c *client) chance(percent int) bool { return c.random.IntN(100) < percent }

// pause sleeps, until the work is to end.
func (c *client) pause(length time.Duration) { sleep(c.working, length) }

// sleep waits, or returns earlier if ctx ends.
func sleep(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(max(0, length))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// habits are what clients do, and how long they wait. Those without a unit are how often of a hundred times.
type habits struct {
	shared    int // acquire a shared lease
	waiting   int // wait for the lock
	freezing  int // pause past the TTL, then write
	abandoned int // leave the lease to expire
	long      int // hold it for longer than its TTL, by heartbeats
	reading   int // read records
	renewing  int // renew the lease after a write
	twice     int // send a write twice at the same time
	repeated  int // send it again after it was admitted
	lost      int // throw an answer away
	leaving   int // leave a write that was not applied, instead of sending it again

	// TTLs are short enough for many leases to run out while a load lasts.
	ttlMin, ttlSpread time.Duration
	// writesMax is how many writes a client makes under a lease, at most.
	writesMax int
	// patience is how long a client waits for one answer before it turns to another gateway.
	patience time.Duration
	// finishWithin bounds what was begun before the end, and the readings after it.
	finishWithin time.Duration
}

// waitMost is the longest wait for a lock.
const waitMost = 2 * time.Second

// standard are the habits of Run's clients.
var standard = habits{
	shared: 15, waiting: 60, freezing: 6, abandoned: 5, long: 4,
	reading: 25, renewing: 25, twice: 10, repeated: 10, lost: 5,
	ttlMin: 250 * time.Millisecond, ttlSpread: 750 * time.Millisecond, writesMax: 6, patience: 5 * time.Second, finishWithin: 15 * time.Second,
}
