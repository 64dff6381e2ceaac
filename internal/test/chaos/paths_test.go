//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

// way is a way to leases and writes beside that of the load: another interface, or other leases.
type way interface {
	// kind is that of the values that it writes.
	kind() string
	// write is the kind of operation that writes.
	write() spec.Kind
	// perform performs an operation. An error is what no client can have deserved.
	perform(ctx context.Context, op spec.Op) (spec.Answer, spec.Choice, error)
	end()
}

const (
	pathTTL = 100 * time.Millisecond
	// pathClients is how many work by each path.
	pathClients = 3
	// attemptsOfAWrite bounds how often a write is sent whose outcome is not known.
	attemptsOfAWrite = 10
	attemptTimeout   = 500 * time.Millisecond
	pathPause        = 30 * time.Millisecond
	// acksOfAPath is how many writes of each path are acknowledged in an epoch, at least.
	acksOfAPath = 10
	// neverGranted is above every token that is ever granted (fence.jump).
	neverGranted = int64(1) << 52
)

// pathClient leases subtrees, nested ones too, and names in them, alone and shared, by a path. It writes under its leases,
// late too, and sends what must fail.
type pathClient struct {
	way

	number  int
	root    string
	journal *journal.Journal
	random  *rand.Rand
	working context.Context //nolint:containedctx // it is the client's life

	sessions bool // some leases are in one
	// newest is the newest token that a client of the tree was granted. They send it with each acquire; nil: they do not.
	newest           *atomic.Int64
	leases, sequence int64
}

// startPaths starts the clients of the paths. wait returns when the clients have ended, which they do soon after ctx.
func (w *world) startPaths(ctx context.Context, prefix string, e epoch) (wait func()) {
	var newest *atomic.Int64
	if e.remembers {
		newest = &atomic.Int64{}
	}
	w.paths = nil
	var running sync.WaitGroup
	start := func(c *pathClient) {
		w.paths = append(w.paths, c.kind())
		c.number, c.journal, c.working = 1000+len(w.paths), w.journal, ctx
		running.Go(c.work)
	}
	for i := range uint64(pathClients) {
		random := rand.New(rand.NewPCG(*seed, i))
		start(&pathClient{way: &httpPath{w, random}, random: random, root: prefix + "tree", sessions: true, newest: newest})
		if !e.loses { // a client of SQL may use the database that has lost
			random := rand.New(rand.NewPCG(*seed, pathClients+i))
			start(&pathClient{way: newSQLPath(w, random), random: random, root: prefix + "sql"})
		}
	}
	return running.Wait
}

// awaitPaths returns when each path got its writes acknowledged; or a client an answer that no fault explains.
func (w *world) awaitPaths() {
	w.t.Helper()
	for _, kind := range w.paths {
		await.True(w.t, "writes of the kind "+kind+" are acknowledged", func() bool {
			acks, sound := w.journal.Progress(kind)
			return acks >= acksOfAPath || !sound
		})
	}
}

// draw draws an acquire in the tree root/a/1, root/b/1, of a subtree or a name, exclusive or shared, and the resources that
// the lease may write to.
func (c *pathClient) draw() (op spec.Op, resources []store.Name) {
	first, second := store.Name(c.root+"/a/1"), store.Name(c.root+"/b/1")
	below := store.Name(path.Dir(string(first)))
	c.leases++
	op = spec.Op{Kind: spec.Acquire, Owner: fmt.Sprintf("%s-%d.%d", c.kind(), c.number, c.leases), TTL: pathTTL,
		Scope: store.Subtree, Mode: store.Exclusive}
	op.Request = op.Owner
	switch c.random.IntN(6) {
	case 0, 1:
		op.Name, resources = store.Name(c.root), []store.Name{first, second}
	case 2, 3:
		op.Name, resources = below, []store.Name{first}
	case 4:
		op.Name, resources, op.Scope = first, []store.Name{first}, store.Node
	default:
		op.Name, resources, op.Scope = second, []store.Name{second}, store.Node
	}
	if c.random.IntN(5) == 0 {
		op.Mode = store.Shared
	}
	return op, resources
}

func (c *pathClient) work() {
	defer c.end()
	for c.working.Err() == nil {
		op, resources := c.draw()
		if c.sessions {
			op.Wait = time.Duration(c.random.IntN(300)) * time.Millisecond
			if c.random.IntN(3) == 0 {
				session := c.call(spec.Op{Kind: spec.OpenSession, Owner: op.Owner, TTL: pathTTL})
				op.Session, op.TTL = session.Chosen.ID, 0
				if session.Answer.Code != spec.CodeDone {
					c.rest(pathPause)
					continue
				}
			}
		}
		if c.newest != nil {
			op.NewestToken = c.newest.Load()
		}
		lease := c.call(op)
		if lease.Answer.Code != spec.CodeGranted {
			c.rest(pathPause)
			continue
		}
		if c.newest != nil {
			for known := c.newest.Load(); known < lease.Answer.Token && !c.newest.CompareAndSwap(known, lease.Answer.Token); {
				known = c.newest.Load()
			}
		}
		c.sequence = 0
		c.hold(lease, resources)
	}
}

// call performs an operation once, and records it.
func (c *pathClient) call(op spec.Op) spec.Call {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.working), attemptTimeout+op.Wait)
	defer cancel()
	call, surprise := spec.MakeCall(c.journal, c.number, op, func() (spec.Answer, spec.Choice, error) {
		return c.perform(ctx, op)
	})
	if surprise != nil {
		c.journal.Unexpected(fmt.Sprintf("%v: %s", surprise, call))
	}
	return call
}

// hold writes under a lease, tries what must fail, and lets the lease go, or does not. It may write later all the same.
func (c *pathClient) hold(lease spec.Call, resources []store.Name) {
	for range 1 + c.random.IntN(2) {
		c.send(c.next(lease, resources))
	}
	if c.random.IntN(2) == 0 {
		c.tryForbidden(lease, resources)
	}
	if c.random.IntN(2) == 0 {
		c.rest(pathTTL + time.Duration(c.random.IntN(200))*time.Millisecond)
		c.send(c.next(lease, resources))
	}
	if c.random.IntN(2) == 0 {
		end := spec.Op{Kind: spec.Release, Name: lease.Op.Name, Owner: lease.Op.Owner, Token: lease.Answer.Token,
			LeaseID: lease.Answer.ID}
		if lease.Op.Session != uuid.Nil {
			end = spec.Op{Kind: spec.EndSession, Session: lease.Op.Session}
		}
		c.call(end)
		c.send(c.next(lease, resources))
	}
}

// next makes a numbered write under a lease, half of them with the lease_id.
func (c *pathClient) next(lease spec.Call, resources []store.Name) spec.Op {
	c.sequence++
	sequence := c.sequence
	op := journal.Compose(c.kind(), spec.Op{Kind: c.write(), Name: resources[c.random.IntN(len(resources))],
		Owner: lease.Op.Owner, Token: lease.Answer.Token, Sequence: &sequence})
	if c.random.IntN(2) == 0 {
		op.LeaseID = lease.Answer.ID
	}
	return op
}

// tryForbidden sends a write that must fail, whatever else happens.
func (c *pathClient) tryForbidden(lease spec.Call, resources []store.Name) {
	op := c.next(lease, resources)
	switch c.random.IntN(3) {
	case 0:
		op.Token, op.LeaseID = neverGranted+c.random.Int64N(neverGranted/2), uuid.Nil
		op = journal.Compose(c.kind(), op)
	case 1:
		op.LeaseID = uuid.New()
	default:
		op.Token, op.Sequence = 0, nil
	}
	c.send(op)
}

// send sends a write until its outcome is known.
func (c *pathClient) send(op spec.Op) {
	for range attemptsOfAWrite {
		code := c.call(op).Answer.Code
		if code != spec.CodeUnknown && code != spec.CodeNotApplied {
			return
		}
		c.rest(pathPause)
	}
}

func (c *pathClient) rest(length time.Duration) {
	select {
	case <-c.working.Done():
	case <-time.After(length):
	}
}

// httpPath performs operations by HTTP, each at any gateway.
type httpPath struct {
	w      *world
	random *rand.Rand
}

func (*httpPath) kind() string { return "tree" }

func (*httpPath) write() spec.Kind { return spec.Put }

func (*httpPath) end() {}

// deserved are the codes of answers that a client of a path may get. A token that was invented must be answered as
// unknown.
var deserved = []string{
	spec.CodeUnknown, spec.CodeNotApplied, spec.CodeHeld, spec.CodeLost, spec.CodeSessionLost, spec.CodeNotFound,
	string(store.VerdictTokenStale), string(store.VerdictLeaseMismatch), string(store.VerdictTokenRequired),
}

func (p *httpPath) perform(ctx context.Context, op spec.Op) (spec.Answer, spec.Choice, error) {
	answer, chosen, err := load.Perform(ctx, p.w.members[p.random.IntN(len(p.w.members))].api, op)
	unavailable := answer.Code == spec.CodeUnknown || answer.Code == spec.CodeNotApplied
	switch {
	case answer.Code == string(store.VerdictTokenUnknown), errors.Is(err, context.DeadlineExceeded):
		return answer, chosen, nil
	case !slices.Contains(deserved, answer.Code), op.Token >= neverGranted && !unavailable:
		return answer, chosen, err
	case lockclient.ProblemOf(err) == nil:
		return answer, chosen, err
	}
	return answer, chosen, nil
}
