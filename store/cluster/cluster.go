package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/readiness"
)

const (
	// refreshInterval is the time between two looks at the placement, and for names that are to move.
	refreshInterval = time.Second
	// A call whose name is on its way is repeated after a pause, each twice the one before.
	firstPause, longestPause = 5 * time.Millisecond, 250 * time.Millisecond
)

// Cluster is the engine of the coordinator, and of each name the engine of its node. It is safe for concurrent use, and
// any number of Clusters may work on the same databases.
type Cluster struct {
	coordinator

	engine  *engine.Engine // of the coordinator
	open    Opener
	current atomic.Pointer[placement]
	looking sync.Mutex // for a new placement
	looked  time.Time

	mu    sync.Mutex
	nodes map[string]*node
}

// Opener returns the engine of the node at an address, and a function that ends it.
type Opener func(address string) (on *engine.Engine, end func(), err error)

// node is one that was opened.
type node struct {
	address string
	engine  *engine.Engine
	end     func()
}

// coordinator are the methods of the coordinator's engine that are not about names.
type coordinator interface {
	CreateKey(context.Context, store.KeyRequest) (store.Key, error)
	RotateKey(ctx context.Context, id string, request store.KeyRequest, overlap time.Duration) (store.Key, error)
	RevokeKey(ctx context.Context, id string) (store.Key, error)
	Keys(context.Context, store.KeyQuery) ([]store.Key, error)
	Policies(context.Context) ([]store.Policy, error)
	Policy(ctx context.Context, prefix string) (store.Policy, error)
	Audit(context.Context, store.AuditQuery) ([]store.AuditEntry, error)
	AuditSeals(ctx context.Context, after int64) (seals []store.AuditSeal, unsealed int64, err error)
	AuditHead(context.Context) (seal int64, hash string, err error)
	NoteRefusals(context.Context, []store.Refusal) error
	Tables(context.Context, store.TableQuery) ([]store.ProtectedTable, error)
	SQLRoles(context.Context) ([]store.SQLRole, error)

	Rejections(context.Context, store.RejectionQuery) ([]store.Rejection, error)
	RejectionSummary(context.Context, store.RejectionFilter) (store.RejectionSummary, error)
	RejectionDetail(ctx context.Context, id int64, within []string) (store.RejectionDetail, error)
	FollowRejections() store.RejectionFollower
	RejectionsSince(ctx context.Context, filter store.RejectionFilter, after time.Time) (store.RejectionChanges, error)

	GatewayID() uuid.UUID
	Ready(context.Context) error
	NotReady() *readiness.NotReadyError
	KeepSample(ctx context.Context, state store.GatewayState, uptime time.Duration) (at time.Time, err error)
	ForgetGateway(ctx context.Context, id uuid.UUID) error
	StatementTimeout() time.Duration
}

// New returns a Cluster. A node is opened when the placement has it first, and anew when its address has changed.
func New(coordinator *engine.Engine, open Opener) *Cluster {
	return &Cluster{coordinator: coordinator, engine: coordinator, open: open, nodes: map[string]*node{}}
}

// Start reads the placement, and opens the nodes. It returns ErrUnavailable where the coordinator does not answer.
func (c *Cluster) Start(ctx context.Context) error { return c.refresh(ctx, time.Now()) }

// Follow reads the placement again and again until ctx ends, moves names to where they are to be, and what nodes have
// recorded of rejected writes to the coordinator. Where another process moves names, it lets their waiters and watches
// know. It passes errors to onError, and tries again.
func (c *Cluster) Follow(ctx context.Context, onError func(error)) {
	known := map[string][]store.NameRange{} // by node
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshInterval):
		}
		err := errors.Join(c.refresh(ctx, time.Now()), c.Move(ctx), c.MoveRejections(ctx))
		for name, on := range c.Nodes() {
			ranges, failed := on.Ranges(ctx)
			moves := func(r store.NameRange) bool { return r.MovesTo != "" }
			if failed == nil && (!slices.Equal(ranges, known[name]) || slices.ContainsFunc(ranges, moves)) {
				on.NamesMoved()
			}
			known[name] = ranges
			err = errors.Join(err, failed)
		}
		if err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// refresh reads the placement, unless that was read after a time.
func (c *Cluster) refresh(ctx context.Context, after time.Time) error {
	c.looking.Lock()
	defer c.looking.Unlock()
	if c.looked.After(after) {
		return nil
	}
	begun := time.Now()
	read, err := readPlacement(ctx, c.engine.Store)
	if err != nil {
		return err
	}
	for name, address := range read.addresses {
		if err := c.openNode(name, address); err != nil {
			return err
		}
	}
	c.current.Store(read)
	c.looked = begun
	return nil
}

// openNode opens a node, unless it is open at this address.
func (c *Cluster) openNode(name, address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.nodes[name]
	if known != nil && known.address == address {
		return nil
	}
	on, end, err := c.open(address)
	if err != nil {
		return fmt.Errorf("node %s: %w", address, err)
	}
	c.nodes[name] = &node{address, on, end}
	if known != nil {
		go known.end() // it waits for calls under way
	}
	return nil
}

// Close ends all nodes, after the calls under way.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.nodes {
		known.end()
	}
	clear(c.nodes)
}

// CutOff cancels the writes in flight at all nodes; see engine.Engine.CutOff.
func (c *Cluster) CutOff() {
	for _, on := range c.Nodes() {
		on.CutOff()
	}
}

// node returns the engine of a node. Also one that the placement has no more may have names that are to move.
func (c *Cluster) node(name string) (*engine.Engine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.nodes[name]; known != nil {
		return known.engine, nil
	}
	return nil, store.NotApplied(fmt.Errorf("the cluster has no node %s", name))
}

// engineOf returns the engine of the node of a name, by the placement that was read last.
func (c *Cluster) engineOf(name store.Name) (*engine.Engine, error) {
	read := c.current.Load()
	if read == nil {
		return nil, store.NotApplied(errors.New("the placement of names has not been read yet"))
	}
	at := read.node(name)
	if at == "" {
		return nil, store.NotApplied(fmt.Errorf("no node has the name %s", name))
	}
	return c.node(at)
}

// at calls the engine of a name's node, again and again while the name is on its way to another node; at most for the
// statement timeout, after which it returns ErrUnavailable.
func (c *Cluster) at(ctx context.Context, name store.Name, call func(*engine.Engine) error) error {
	begun, pause := time.Now(), firstPause
	for {
		asked := time.Now()
		on, err := c.engineOf(name)
		if err != nil {
			return err
		}
		if err = call(on); !errors.Is(err, store.ErrElsewhere) {
			return err
		}
		if time.Since(begun)+pause > c.StatementTimeout() {
			return store.NotApplied(err)
		}
		select {
		case <-ctx.Done():
			return store.NotApplied(fmt.Errorf("%w: %w", err, ctx.Err()))
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
		if err := c.refresh(ctx, asked); err != nil {
			return err
		}
	}
}

// get is at for a call with a result.
func get[T any](
	ctx context.Context, c *Cluster, name store.Name, call func(*engine.Engine) (T, error),
) (result T, err error) {
	err = c.at(ctx, name, func(on *engine.Engine) error {
		var err error
		result, err = call(on)
		return err
	})
	return result, err
}

// Nodes returns the engines of all nodes.
func (c *Cluster) Nodes() map[string]*engine.Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := map[string]*engine.Engine{}
	for name, known := range c.nodes {
		nodes[name] = known.engine
	}
	return nodes
}
