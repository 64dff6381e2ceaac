//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// way is a way to leases and writes beside that of the load: another interface, or other leases.
type way interface {
	// kind is that of the values that it writes.
	kind() string
	// draw returns a lock and how to lease it, and the resources that the lease may write to.
	draw(random *rand.Rand) (lock string, request api.AcquireRequest, resources []string)
	// acquire returns false if no lease was granted, or if the answer did not come.
	acquire(ctx context.Context, lock string, request api.AcquireRequest) (api.Lease, bool)
	write(ctx context.Context, w attempt) answer
	// bare changes what a path can change without any token.
	bare(ctx context.Context, w attempt) answer
	// release reports whether the answer says that the lease was released.
	release(ctx context.Context, lease api.Lease) bool
	end()
}

// attempt is one sending of a write.
type attempt struct {
	resource, key, value, leaseID string
	token, sequence               int64
}

// answer is what came of an attempt.
type answer struct {
	verdict  verdict
	version  int64 // of an admitted one; 0 where the path does not tell
	replayed bool
	// surprise is what no client can have deserved.
	surprise error
}

type verdict int

const (
	unknown    verdict = iota // it may have been applied
	notApplied                // it may be sent again
	refused
	admitted
)

const (
	pathTTLMS = 100
	// pathClients is how many work by each path.
	pathClients = 3
	// attemptsOfAWrite bounds how often a write is sent whose outcome is not known.
	attemptsOfAWrite = 10
	attemptTimeout   = 500 * time.Millisecond
	pathPause        = 30 * time.Millisecond
	// acksOfAPath is how many writes of each path are acknowledged in an epoch, at least.
	acksOfAPath = 5
	// neverGranted is above every token that is ever granted (fence.jump).
	neverGranted = int64(1) << 52
)

// pathClient works by a path, and does what must fail.
type pathClient struct {
	way

	name    string
	journal *journal.Journal
	random  *rand.Rand
	working context.Context //nolint:containedctx // it is the client's life

	loses            bool // a release may be lost
	leases, sequence int64
}

// startPaths starts the clients of the paths. wait returns when the clients have ended, which they do soon after ctx.
func (w *world) startPaths(ctx context.Context, prefix string, e epoch) (wait func()) {
	var newest *atomic.Int64
	if e.remembers {
		newest = &atomic.Int64{}
	}
	w.paths = nil
	for range pathClients {
		w.paths = append(w.paths, newTreePath(w, prefix+"tree", newest))
		if !e.loses { // a client of SQL may use the database that has lost
			w.paths = append(w.paths, newSQLPath(w, prefix+"sql"))
		}
	}
	var running sync.WaitGroup
	for i, p := range w.paths {
		c := &pathClient{
			way: p, name: fmt.Sprintf("%s-%d", p.kind(), i), journal: w.journal, working: ctx, loses: e.loses,
			random: rand.New(rand.NewPCG(*seed, uint64(i))),
		}
		running.Go(c.work)
	}
	return running.Wait
}

// awaitPaths returns when each path got its writes acknowledged; or a client an answer that no fault explains.
func (w *world) awaitPaths() {
	w.t.Helper()
	for _, p := range w.paths {
		await.True(w.t, "writes of the kind "+p.kind()+" are acknowledged", func() bool {
			acks, sound := w.journal.ProgressOf(p.kind())
			return acks >= acksOfAPath || !sound
		})
	}
}

// drawInTree draws a lock in the tree root/a/1, root/b/1: a subtree or a name, exclusive or shared.
func drawInTree(random *rand.Rand, first, second string) (lock string, request api.AcquireRequest, resources []string) {
	below := path.Dir(first)
	request = api.AcquireRequest{Scope: "subtree", Mode: "exclusive"}
	switch random.IntN(6) {
	case 0, 1:
		lock, resources = path.Dir(below), []string{first, second}
	case 2, 3:
		lock, resources = below, []string{first}
	case 4:
		lock, resources, request.Scope = first, []string{first}, "node"
	default:
		lock, resources, request.Scope = second, []string{second}, "node"
	}
	if random.IntN(5) == 0 {
		request.Mode = "shared"
	}
	return lock, request, resources
}

func (c *pathClient) work() {
	defer c.end()
	for c.working.Err() == nil {
		c.leases++
		lock, request, resources := c.draw(c.random)
		request.OwnerID = fmt.Sprintf("%s.%d", c.name, c.leases)
		request.RequestID = &request.OwnerID
		sent := c.journal.Now()
		lease, granted := c.acquire(c.working, lock, request)
		if !granted {
			c.rest(pathPause)
			continue
		}
		c.journal.Granted(lease, sent, c.journal.Now())
		c.sequence = 0
		c.hold(lease, resources)
	}
}

// hold writes under a lease, tries what must fail, and lets the lease go, or does not. It may write later all the same.
func (c *pathClient) hold(lease api.Lease, resources []string) {
	for range 1 + c.random.IntN(2) {
		c.write(lease, c.pick(resources), "")
	}
	if c.random.IntN(2) == 0 {
		c.tryForbidden(lease, c.pick(resources))
	}
	if c.random.IntN(2) == 0 {
		c.rest(pathTTLMS*time.Millisecond + time.Duration(c.random.IntN(200))*time.Millisecond)
		c.write(lease, c.pick(resources), "")
	}
	if c.random.IntN(2) == 0 {
		mustFail := ""
		if c.release(c.working, lease) && !c.loses {
			mustFail = "a released lease"
		}
		c.write(lease, c.pick(resources), mustFail)
	}
}

func (c *pathClient) pick(from []string) string { return from[c.random.IntN(len(from))] }

// next numbers a write under a token.
func (c *pathClient) next(resource string, token int64, owner string) attempt {
	c.sequence++
	a := attempt{resource: resource, token: token, sequence: c.sequence}
	a.key, a.value = journal.Value(c.kind(), fmt.Sprintf("%d.%d", token, c.sequence), owner)
	return a
}

// write sends a numbered write, half of them with the lease_id.
func (c *pathClient) write(lease api.Lease, resource, mustFail string) {
	a := c.next(resource, lease.FencingToken, lease.OwnerID)
	if c.random.IntN(2) == 0 {
		a.leaseID = lease.LeaseID
	}
	if lease.Mode == "shared" {
		mustFail = "a shared lease"
	}
	c.send(a, mustFail, c.way.write)
}

// tryForbidden sends a write that must fail, whatever else happens.
func (c *pathClient) tryForbidden(lease api.Lease, resource string) {
	switch c.random.IntN(3) {
	case 0:
		invented := neverGranted + c.random.Int64N(neverGranted/2)
		c.send(c.next(resource, invented, lease.OwnerID), "a token that was never granted", c.way.write)
	case 1:
		a := c.next(resource, lease.FencingToken, lease.OwnerID)
		a.leaseID = uuid.NewString()
		c.send(a, "a lease_id that is not the lease's", c.way.write)
	default:
		c.send(c.next(resource, lease.FencingToken, lease.OwnerID), "no token", c.bare)
	}
}

// send sends a write until its outcome is known, and notes that.
func (c *pathClient) send(a attempt, mustFail string, by func(context.Context, attempt) answer) {
	noted := load.Write{
		Resource: a.resource, Key: a.key, Value: a.value, Token: a.token, Sequence: a.sequence, MustFail: mustFail,
	}
	for range attemptsOfAWrite {
		noted.Attempts++
		noted.Sent = c.journal.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.working), attemptTimeout)
		got := by(ctx, a)
		cancel()
		noted.Answered = c.journal.Now()
		if got.surprise != nil {
			c.journal.Unexpected(fmt.Sprintf("%s, write %s: %v", c.name, a.key, got.surprise))
		}
		noted.Applied, noted.Version, noted.Replayed = got.verdict == admitted, got.version, got.replayed
		noted.Doubtful = noted.Doubtful || got.verdict == unknown
		if got.verdict == refused || got.verdict == admitted {
			break
		}
		c.rest(pathPause)
	}
	if noted.Applied && mustFail != "" {
		c.journal.Unexpected(fmt.Sprintf("%s: the write %s was admitted, with %s", a.resource, a.key, mustFail))
	}
	c.journal.Wrote(noted)
}

func (c *pathClient) rest(length time.Duration) {
	select {
	case <-c.working.Done():
	case <-time.After(length):
	}
}
