package load

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// readyWithin bounds how long a gateway that is only just starting is waited for.
	readyWithin = 5 * time.Second

	clientsMax = 10_000
	locksMax   = 100_000
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
	// gateway chooses one for a call, compose the key and the value of a write, and put sends it.
	gateway func(*mathrand.Rand) *lockclient.API
	compose func(random *mathrand.Rand, n number, owner string) (key, value string)
	// sendNewestToken is that of an Exercise.
	sendNewestToken bool
	put             func(context.Context, *lockclient.API, string, string, lockclient.Write) (api.WriteResult, error)

	seed    uint64
	names   []string
	begun   time.Time
	checker *checker
	tally   *tally
}

func newRun(names []string, seed uint64) *run {
	r := &run{habits: standard, observer: noObserver{}, seed: seed, names: names, begun: time.Now(), tally: newTally()}
	r.compose = func(random *mathrand.Rand, n number, owner string) (key, value string) {
		key = keyName(random.IntN(keys))
		return key, valueOf(key, n, owner)
	}
	r.put = func(ctx context.Context, to *lockclient.API, resource, key string, w lockclient.Write) (api.WriteResult,
		error) {
		return to.Put(ctx, resource, key, w)
	}
	r.checker = newChecker(names, func() time.Duration { return time.Since(r.begun) })
	return r
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
	names := make([]string, config.Locks)
	for i := range names {
		names[i] = fmt.Sprintf("%s/%d", prefix, i)
	}
	r := newRun(names, config.Seed)
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
	report.Unread = r.readBack(finishing)
	r.tally.report(report)
	report.Violations, report.ViolationsTotal = r.checker.violations()
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
			run: r, name: fmt.Sprintf("load-%d", i), working: working, sending: sending,
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
		_, violations := r.checker.violations()
		p := Progress{
			Elapsed: at.Sub(r.begun), Clients: config.Clients, Violations: violations,
			PerSecond: float64(now-answered) / at.Sub(last).Seconds(),
		}
		r.tally.count(func(c *Counts) { p.Zombies = c.ZombiesShutOut })
		if config.Progress != nil {
			config.Progress(p)
		}
		answered, last = now, at
	}
}

// readBack reads every resource, and returns how many could not be read.
func (r *run) readBack(ctx context.Context) (unread int) {
	c := &client{run: r, name: "load", sending: ctx, working: ctx,
		random: mathrand.New(mathrand.NewPCG(r.seed, 0))} //nolint:gosec // see work
	for _, name := range r.names {
		l := r.checker.histories[name]
		reading := c.list(l)
		ok := reading != nil
		for key := range keys {
			ok = ok && c.get(l, keyName(key)) != nil
		}
		if !ok {
			unread++
			continue
		}
		l.settled(reading)
	}
	return unread
}

// keys is how many records a resource has: a list of them is one page.
const keys = 4

func keyName(i int) string { return fmt.Sprintf("k%d", i) }

func valueOf(key string, n number, owner string) string {
	return fmt.Sprintf(`{"write":%q,"key":%q,"by":%q}`, n, key, owner)
}

func tokenOf(n number) api.FencingToken {
	return api.FencingToken{Token: n.token, Sequence: &n.sequence}
}

// Exercise is a load for tests that break gateways and databases while clients work, and that check more than an API
// shows. Its leases are exclusive, and its clients soon turn to another gateway.
type Exercise struct {
	Clients int
	Locks   []string
	// Gateway returns a gateway for a call. It is called by all clients at once.
	Gateway func(*mathrand.Rand) *lockclient.API
	// Compose returns the key and the value, in JSON, of a numbered write.
	Compose func(random *mathrand.Rand, number, owner string) (key, value string)
	// Put sends a write.
	Put      func(context.Context, *lockclient.API, string, string, lockclient.Write) (api.WriteResult, error)
	Observer Observer
	// TTLMS is the TTL of all leases, in milliseconds.
	TTLMS int64
	// FinishWithin bounds what was begun before the end.
	FinishWithin time.Duration
	// RenewalsMayBeLost says that the database may crash. Renewals do not wait for the disk: a crash may take one back
	// that was answered, and the lease then expires earlier.
	RenewalsMayBeLost bool
	// CommitsMayBeLost says that a database may take over which lacks the last commits of the one before. Then the run
	// checks nothing but that tokens rise.
	CommitsMayBeLost bool
	// SendNewestToken has clients send the newest token that any of them was granted with each acquire.
	SendNewestToken bool
}

// Observer is shown what clients do. Its methods are called by all of them at once. Times are since the begin of the
// run.
type Observer interface {
	// Granted is called with each lease. Its acquire was first sent at the time sent.
	Granted(lease api.Lease, sent, answered time.Duration)
	// Wrote is called with each write, when nothing more becomes known of it.
	Wrote(Write)
	// Unavailable is called with each answer that shows a gateway that can't serve, or that did not answer.
	Unavailable(error)
	// Unexpected is called with each answer that no client can have deserved.
	Unexpected(what string)
}

// Write is a numbered write, however often it was sent.
type Write struct {
	Resource, Key, Value string
	Token, Sequence      int64
	Attempts             int
	// MustFail is why it must be refused, whenever it comes; "" if it may be admitted.
	MustFail string
	// Applied writes were acknowledged. Doubtful ones may have been applied, once. All others were not.
	Applied, Doubtful bool
	// Of the attempt that was acknowledged, the first that was no replay if there is one:
	Sent, Answered time.Duration
	Version        int64
	Replayed       bool
}

// Run lets clients work until ctx ends, and bring to an end what they have begun. It returns what the load's own
// checker found, which needs no database.
func (e Exercise) Run(ctx context.Context, seed uint64) []Violation {
	r := newRun(e.Locks, seed)
	r.checker.renewalsMayBeLost, r.checker.commitsMayBeLost = e.RenewalsMayBeLost, e.CommitsMayBeLost
	r.sendNewestToken = e.SendNewestToken
	r.gateway, r.put, r.observer = e.Gateway, e.Put, e.Observer
	r.compose = func(random *mathrand.Rand, n number, owner string) (key, value string) {
		return e.Compose(random, n.String(), owner)
	}
	r.shared, r.waiting, r.reading, r.long = 0, 0, 0, 0
	r.freezing, r.abandoned, r.leaving = 20, 25, 25
	r.ttlLeastMS, r.ttlSpreadMS, r.writesMax = e.TTLMS, 1, 8
	r.patience, r.finishWithin = 500*time.Millisecond, e.FinishWithin
	r.work(ctx, e.Clients)
	found, _ := r.checker.violations()
	return found
}

// noObserver is the Observer of a load without one.
type noObserver struct{}

func (noObserver) Granted(api.Lease, time.Duration, time.Duration) {}
func (noObserver) Wrote(Write)                                     {}
func (noObserver) Unavailable(error)                               {}
func (noObserver) Unexpected(string)                               {}
