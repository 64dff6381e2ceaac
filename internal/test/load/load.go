package load

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

const (
	// readyWithin bounds how long a gateway that is only just starting is waited for.
	readyWithin = 5 * time.Second

	clientsMax = 10_000
	locksMax   = 100_000

	// violationsKept bounds how many are reported in full; the others are counted.
	violationsKept = 100
)

// Config says what to do.
type Config struct {
	// Gateways are called at random; all serve one database.
	Gateways []*lockclient.API
	// URLs are theirs, for the report.
	URLs []string
	// Clients is how many work at once: 1 to 10,000.
	Clients int
	// Locks is how many they contend for: 1 to 100,000; 0: a quarter of Clients.
	Locks int
	// Duration is how long; it ends earlier if ctx does.
	Duration time.Duration
	// Seed makes the clients choose the same again, as far as the answers allow; 0: a random one.
	Seed uint64
	// Pressure is applied beside the checked clients, on names that they never use.
	Pressure []Pressure
	// Waiters is how many clients PressureQueue has wait: 1 to 20,000; 0: 5,000.
	Waiters int
	// DatabaseURL is needed by PressureFence alone.
	DatabaseURL string
	// History, if not nil, is given all calls, as lines that spec.ReadCalls reads.
	History io.Writer
	// Progress is called every second.
	Progress func(Progress)
}

// Progress is the state of a run.
type Progress struct {
	Elapsed    time.Duration
	Clients    int
	PerSecond  float64
	Zombies    int64
	Violations int64
}

// ErrConfig says that a Config has a value beyond its limits.
var ErrConfig = errors.New("not a load that can be run")

func (c *Config) complete() error {
	if c.Locks == 0 {
		c.Locks = max(1, c.Clients/4)
	}
	for c.Seed == 0 {
		c.Seed = mathrand.Uint64() >> 11 //nolint:gosec // it needs no secrecy; JSON numbers are exact below 2^53
	}
	c.Waiters = cmp.Or(c.Waiters, waitersDefault)
	switch {
	case len(c.Gateways) == 0:
		return fmt.Errorf("%w: there is no gateway", ErrConfig)
	case c.Clients < 1 || c.Clients > clientsMax:
		return fmt.Errorf("%w: %d clients, there can be 1 to %d", ErrConfig, c.Clients, clientsMax)
	case c.Locks < 1 || c.Locks > locksMax:
		return fmt.Errorf("%w: %d locks, there can be 1 to %d", ErrConfig, c.Locks, locksMax)
	case c.Duration <= 0:
		return fmt.Errorf("%w: the duration is %s, it must be positive", ErrConfig, c.Duration)
	case c.Waiters < 1 || c.Waiters > waitersMax:
		return fmt.Errorf("%w: %d waiters, there can be 1 to %d", ErrConfig, c.Waiters, waitersMax)
	case c.DatabaseURL == "" && slices.Contains(c.Pressure, PressureFence):
		return fmt.Errorf("%w: pressure %q needs --database-url", ErrConfig, PressureFence)
	}
	for _, kind := range c.Pressure {
		if !slices.Contains(Pressures, kind) {
			return fmt.Errorf("%w: pressure %q, it can be %q", ErrConfig, kind, Pressures)
		}
	}
	return nil
}

// run is a run under way.
type run struct {
	habits
	observer Observer
	// gateway chooses one for a call, and compose makes a numbered write of its token.
	gateway func(*mathrand.Rand) *lockclient.API
	compose func(*mathrand.Rand, spec.Op) spec.Op
	// forgets and sendNewestToken are those of an Exercise.
	forgets, sendNewestToken bool

	seed  uint64
	slots []*slot
	begun time.Time
	tally *tally

	// Of Run, which checks the names of its slots when they retire.
	*spec.Recorder

	history io.Writer

	mu     sync.Mutex
	found  []spec.Violation
	total  int64
	unread int
	failed error // to write the history
}

func newRun(seed uint64) *run {
	r := &run{habits: standard, seed: seed, begun: time.Now(), tally: newTally(), Recorder: spec.NewRecorder()}
	r.observer = r
	r.compose = func(random *mathrand.Rand, op spec.Op) spec.Op {
		op.Key = keyName(random.IntN(keys))
		op.Value = fmt.Sprintf(`{"write":"%d.%d","key":%q,"by":%q}`, op.Token, *op.Sequence, op.Key, op.Owner)
		return op
	}
	return r
}

// slot has a name in use, until that retires: then the next one has no history yet.
type slot struct {
	prefix  string
	usesMax int // of a name; 0: it never retires

	mu      sync.Mutex
	retired int
	current *lock
}

// lock is a name that clients contend for.
type lock struct {
	name   store.Name
	slot   *slot
	newest atomic.Int64 // token that a client was granted

	// How many clients have used it, and how many do; under the slot's mutex.
	uses, users int
}

// enter returns the lock that is in use.
func (s *slot) enter() *lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.usesMax > 0 && s.current.uses >= s.usesMax {
		s.current = &lock{name: store.Name(s.prefix), slot: s}
		if s.usesMax > 0 {
			s.current.name = store.Name(fmt.Sprintf("%s.%d", s.prefix, s.retired))
		}
		s.retired++
	}
	s.current.uses++
	s.current.users++
	return s.current
}

// leave reports whether the lock has retired, and this client was the last to use it.
func (l *lock) leave() bool {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	l.users--
	return l.users == 0 && l.slot.current != l
}

// know keeps a token, if it is the newest.
func (l *lock) know(token int64) {
	known := l.newest.Load()
	for known < token && !l.newest.CompareAndSwap(known, token) {
		known = l.newest.Load()
	}
}

// Names retire after some uses, of about ten calls each. So a run of hours keeps no more than a short one: usesKept of all
// names together, or usesMin of each.
const (
	usesKept = 2000
	usesMin  = 10
)

// Unavailable and Unexpected are in the report.
func (r *run) Unavailable(error) {}

// Unexpected is in the report.
func (r *run) Unexpected(string) {}

// judge checks a name that has retired, and forgets it.
func (r *run) judge(name store.Name) {
	calls := r.Take(name)
	r.violated(spec.Check(calls)...)
	if r.history == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = cmp.Or(r.failed, spec.WriteCalls(r.history, calls))
}

func (r *run) violated(found ...spec.Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += int64(len(found))
	r.found = append(r.found, found[:min(len(found), violationsKept-len(r.found))]...)
}

// unavailable notes that a gateway could not be reached, or could not serve.
func (r *run) unavailable(err error) {
	r.tally.unavailable(err)
	r.observer.Unavailable(err)
}

// unexpected notes an answer that no client can have deserved.
func (r *run) unexpected(what string) {
	r.tally.surprise(what)
	r.observer.Unexpected(what)
}

// Run runs the load until its duration or ctx is over, then reads everything back. It returns ErrConfig; or what the
// gateway answered, if none is ready, or if no lease was granted because none could be reached. Violations are no
// error: they are in the report.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	if err := anyReady(ctx, config.Gateways); err != nil {
		return nil, err
	}
	prefix := "load/" + strings.ToLower(rand.Text()[:10])
	r := newRun(config.Seed)
	r.history = config.History
	for i := range config.Locks {
		r.slots = append(r.slots, &slot{prefix: fmt.Sprintf("%s/%d", prefix, i), usesMax: max(usesMin, usesKept/config.Locks)})
	}
	r.gateway = func(random *mathrand.Rand) *lockclient.API { return config.Gateways[random.IntN(len(config.Gateways))] }

	working, stop := context.WithTimeout(ctx, config.Duration)
	defer stop()
	pressureEnd := r.startPressure(working, config, prefix)
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { r.reportProgress(config, done) })
	r.work(working, config.Clients)
	close(done)
	reporting.Wait()
	report := &Report{
		Clients: config.Clients, Locks: config.Locks, Seed: config.Seed, Gateways: config.URLs, Prefix: prefix,
		Took: time.Since(r.begun), Interrupted: ctx.Err() != nil,
	}
	report.TookMS = report.Took.Milliseconds()
	report.Pressure = pressureEnd()

	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.finishWithin)
	defer cancel()
	r.readBack(finishing)
	r.tally.report(report)
	report.Unread, report.Violations, report.ViolationsTotal = r.unread, r.found, r.total
	if r.failed != nil {
		return nil, fmt.Errorf("keep the history: %w", r.failed)
	}
	if report.Counts.Grants == 0 && r.tally.unreached != nil {
		return nil, r.tally.unreached
	}
	return report, nil
}

// anyReady returns nil if one of the gateways can serve.
func anyReady(ctx context.Context, gateways []*lockclient.API) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for _, gateway := range gateways {
		if err = gateway.Ready(ctx); err == nil {
			return nil
		}
	}
	return err
}

// work lets the clients work until working ends, and bring to an end what they have begun.
func (r *run) work(working context.Context, count int) {
	sending, cancel := context.WithCancel(context.WithoutCancel(working))
	defer cancel()
	defer context.AfterFunc(working, func() { time.AfterFunc(r.finishWithin, cancel) })()
	var clients sync.WaitGroup
	for i := range count {
		c := &client{
			run: r, number: i, name: fmt.Sprintf("load-%d", i), working: working, sending: sending,
			random: mathrand.New(mathrand.NewPCG(r.seed, uint64(i))), //nolint:gosec // it is to be repeatable
		}
		clients.Go(c.work)
	}
	clients.Wait()
}

// reportProgress calls config.Progress every second, until done is closed.
func (r *run) reportProgress(config Config, done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	answered, last := int64(0), time.Now()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now, at := r.tally.answered.Load(), time.Now()
		p := Progress{
			Elapsed: at.Sub(r.begun), Clients: config.Clients, PerSecond: float64(now-answered) / at.Sub(last).Seconds(),
		}
		r.mu.Lock()
		p.Violations = r.total
		r.mu.Unlock()
		r.tally.count(func(c *Counts) { p.Zombies = c.ZombiesShutOut })
		if config.Progress != nil {
			config.Progress(p)
		}
		answered, last = now, at
	}
}

// readBack reads and checks the names that are in use at the end.
func (r *run) readBack(ctx context.Context) {
	c := &client{run: r, number: -1, name: "load", sending: ctx, working: ctx,
		random: mathrand.New(mathrand.NewPCG(r.seed, 0))} //nolint:gosec // see work
	for _, s := range r.slots {
		if s.current != nil {
			c.finish(s.current)
		}
	}
}

// finish reads what a name has, which nobody uses any more, and checks it.
func (c *client) finish(l *lock) {
	if !c.readAll(l) {
		c.run.mu.Lock()
		c.run.unread++
		c.run.mu.Unlock()
	}
	c.run.judge(l.name)
}

// keys is how many records a resource has.
const keys = 4

func keyName(i int) store.Name { return store.Name(fmt.Sprintf("k%d", i)) }

// Exercise is a load for tests that break gateways and databases while clients work, and that check more than an API
// shows. Its leases are exclusive, and its clients soon turn to another gateway.
type Exercise struct {
	Clients int
	Locks   []string
	// Gateway returns a gateway for a call. It is called by all clients at once.
	Gateway func(*mathrand.Rand) *lockclient.API
	// Compose makes a numbered write of its token, name and owner.
	Compose  func(random *mathrand.Rand, token spec.Op) spec.Op
	Observer Observer
	// TTL is that of all leases.
	TTL time.Duration
	// FinishWithin bounds what was begun before the end.
	FinishWithin time.Duration
	// CommitsMayBeLost says that a database may take over which lacks the last commits of the one before.
	CommitsMayBeLost bool
	// SendNewestToken has clients send the newest token that any of them was granted with each acquire.
	SendNewestToken bool
}

// Observer records the calls of clients. Its methods are called by all of them at once.
type Observer interface {
	spec.Log
	// Unavailable is called with each answer that shows a gateway that can't serve, or that did not answer.
	Unavailable(err error)
	// Unexpected is called with each answer that no client can have deserved.
	Unexpected(what string)
}

// Run lets clients work until ctx ends, and bring to an end what they have begun.
func (e Exercise) Run(ctx context.Context, seed uint64) {
	r := newRun(seed)
	r.forgets, r.sendNewestToken = e.CommitsMayBeLost, e.SendNewestToken
	r.gateway, r.compose, r.observer = e.Gateway, e.Compose, e.Observer
	for _, name := range e.Locks {
		r.slots = append(r.slots, &slot{prefix: name})
	}
	r.shared, r.waiting, r.reading, r.long = 0, 0, 0, 0
	r.freezing, r.abandoned, r.leaving = 20, 25, 25
	r.ttlMin, r.ttlSpread, r.writesMax = e.TTL, 1, 8
	r.patience, r.finishWithin = 500*time.Millisecond, e.FinishWithin
	r.work(ctx, e.Clients)
}
