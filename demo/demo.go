// Package demo shows why fencegate exists, with real processes, a real gateway and a real PostgreSQL.
//
// A worker acquires a lock and begins to work. SIGSTOP freezes it until long after its lease has expired, as a garbage
// collection, a live migration or a closed laptop might. Another worker acquires the lock, works, and writes. SIGCONT
// thaws the first one, which knows nothing of all this, and writes.
//
// Zombie runs two variants. In the fenced one, workers write through the gateway. In the unfenced one, they write to a
// plain table in the same PostgreSQL, under the same lock, after they looked whether their lease is still live. With
// Config.Gateways it runs the fenced variant again and again, on gateways that already run.
//
// GCPause runs the same two variants with the same workers, as do the demos of package staged. Each is a Failure: a value
// with what happens before A asks for the lock, while A works, when B has the lock, and when B has written.
//
// Claim freezes a worker that has claimed jobs of a table, until another has done them.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

// Config is what every demo takes.
type Config struct {
	// Program is the fencegate binary; it runs the gateway ("serve") and the workers ("demo worker").
	Program string
	// DatabaseURL is the PostgreSQL that the gateway and the plain table use. DatabaseName describes it.
	DatabaseURL, DatabaseName string
	// Suffix ends the names of locks. It keeps apart several runs on one database.
	Suffix string
	// Gateways, if any, are URLs of gateways on one database that already run: the demo runs its fenced variant before
	// them, again and again, to show it on their dashboard. A uses the first, B the last. It leaves the locks and records
	// job-1 to job-5 of the Namespace behind, by default demo. The database is not used then.
	Gateways  []string
	Namespace string
	// Connect makes a client of one of the Gateways. Default: lockclient.New. Environment has the same settings for
	// workers.
	Connect     func(url string, options ...lockclient.Option) (*lockclient.Client, error)
	Environment []string
	// Every is the time from the start of one of these rounds to the start of the next. A round takes about four seconds,
	// and delays the next one if it takes longer.
	Every time.Duration
	// Rounds is how many of them there are; 0: until the context ends.
	Rounds int
	// JSON prints events as JSON, one a line.
	JSON bool
	// Shown, if any, are the names of the events that are printed.
	Shown []string
	// Out is where events are printed.
	Out io.Writer
}

const (
	demoTTL      = 2 * time.Second
	roundTimeout = time.Minute
	// workOfA is time enough to freeze A before it writes, on a machine that is busy with other things. A is frozen for
	// longer than that.
	workOfA = demoTTL
	workOfB = 200 * time.Millisecond
)

func (c Config) newSetup() *setup {
	if c.Connect == nil {
		c.Connect = lockclient.New
	}
	return &setup{
		printer: newPrinter(c), program: c.Program, databaseURL: c.DatabaseURL, databaseName: c.DatabaseName,
		urls: c.Gateways, connect: c.Connect, environment: c.Environment,
	}
}

// ErrUnexpected reports an outcome that must not be: the fence admitted the zombie, the unfenced variant kept the newer
// value, or a credential was wrongly accepted or refused.
var ErrUnexpected = errors.New("the demo did not end as it must")

// scenario is what differs from demo to demo.
type scenario struct {
	failure Failure
	// fenced and unfenced, if set, are the titles of the variants.
	fenced, unfenced string
	// workers is the command that runs a worker; nil: fencegate's own.
	workers []string
	// lock, if set, is the format of the names of locks. prepare, if set, is called before the first round.
	lock    string
	prepare func(ctx context.Context, setup *setup) (undo func(), err error)
	// variants, if set, replaces the two variants and the result.
	variants func(ctx context.Context, setup *setup) error
}

// Failure is what goes wrong in a round. A method that a failure does not need is that of NoFailure.
type Failure interface {
	// Serve starts the servers that the gateway needs, and returns its flags.
	Serve(ctx context.Context, print func(Event)) (flags []string, err error)
	// Prepare is called before A asks for the lock.
	Prepare(ctx context.Context, r *Round) error
	// Strike is called when A has the lock, and works.
	Strike(ctx context.Context, r *Round) error
	// Taken is called when B has the lock, too.
	Taken(ctx context.Context, r *Round) error
	// Heal is called when B has written. After that, A writes.
	Heal(ctx context.Context, r *Round) error
	// Stop ends what was started.
	Stop()
}

// NoFailure is embedded by failures. Its methods do nothing.
type NoFailure struct{}

// Serve starts nothing.
func (NoFailure) Serve(context.Context, func(Event)) ([]string, error) { return nil, nil }

// Prepare does nothing.
func (NoFailure) Prepare(context.Context, *Round) error { return nil }

// Strike does nothing.
func (NoFailure) Strike(context.Context, *Round) error { return nil }

// Taken does nothing.
func (NoFailure) Taken(context.Context, *Round) error { return nil }

// Heal does nothing.
func (NoFailure) Heal(context.Context, *Round) error { return nil }

// Stop does nothing.
func (NoFailure) Stop() {}

// Run runs both variants and prints the result. The outcome is that of [Zombie.Run].
func (c Config) Run(ctx context.Context, failure Failure) error {
	return c.run(ctx, scenario{failure: failure})
}

// run runs both variants and prints the result. It returns nil only if the fenced variant kept the value of B and the
// unfenced one lost it, and ErrUnexpected otherwise. If ctx ends before, it returns the cause.
func (c Config) run(ctx context.Context, scenario scenario) (err error) {
	ctx, ended := endedWithReader(ctx, &c.Out, &err)
	defer ended()
	if len(c.Gateways) > 0 {
		return c.loop(ctx, scenario.failure)
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	setup := c.newSetup()
	defer setup.stop()
	defer scenario.failure.Stop()
	flags, err := scenario.failure.Serve(ctx, setup.print)
	if err != nil {
		return err
	}
	if err := setup.start(ctx, flags...); err != nil {
		return err
	}
	if scenario.prepare != nil {
		undo, err := scenario.prepare(ctx, setup)
		if err != nil {
			return err
		}
		defer undo()
	}
	if scenario.variants != nil {
		return scenario.variants(ctx, setup)
	}
	return c.variants(ctx, setup, scenario.withDefaults(c))
}

func (s scenario) withDefaults(config Config) scenario {
	if s.fenced == "" {
		s.fenced = "With the fence: every write carries its token, and PostgreSQL checks it"
	}
	if s.unfenced == "" {
		s.unfenced = "Without the fence: the same lock and the same workers, the data in a plain table"
	}
	if s.lock == "" {
		s.lock = "job-%d" + config.Suffix
	}
	if s.workers == nil {
		s.workers = workersOf(config.Program)
	}
	return s
}

// workersOf is the command of fencegate that runs a worker.
func workersOf(program string) []string { return []string{program, "demo", "worker"} }

func (c Config) variants(ctx context.Context, setup *setup, scenario scenario) error {
	fenced := newRound(setup, scenario, "fenced", fmt.Sprintf(scenario.lock, 42), "")
	fencedValue, err := fenced.runAndShow(ctx, scenario.fenced, setup.fencedValue)
	if err != nil {
		return err
	}
	unfenced := newRound(setup, scenario, "unfenced", fmt.Sprintf(scenario.lock, 43), c.DatabaseURL)
	unfencedValue, err := unfenced.runAndShow(ctx, scenario.unfenced, setup.unfencedValue)
	if err != nil {
		return err
	}
	return conclude(setup.printer, fencedValue, unfencedValue)
}

// conclude prints the result.
func conclude(printer *printer, fenced, unfenced string) error {
	ofA, ofB := Worker{Name: "A"}.value(), Worker{Name: "B"}.value()
	ok := fenced == ofB && unfenced == ofA
	text := "Result: with the fence B's value was kept and the zombie's write rejected; without it the zombie destroyed " +
		"B's value."
	if !ok {
		text = fmt.Sprintf("Result: UNEXPECTED: with the fence %q is stored, without it %q.", fenced, unfenced)
	}
	printer.print(Event{Event: "result", Fenced: fenced, Unfenced: unfenced, OK: &ok, Text: text})
	if !ok {
		return ErrUnexpected
	}
	return nil
}

// jobs is the number of jobs, and of workers that do them in turn.
const jobs = 5

// loop runs the fenced variant again and again. It returns nil after the last round or when ctx ends, and ErrUnexpected
// as soon as a stale write was stored. A round that fails because a gateway is unreachable is printed as failed, and the
// next one follows. It returns the error of the last round.
func (c Config) loop(ctx context.Context, failure Failure) error {
	setup := c.newSetup()
	defer failure.Stop()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for n := 1; ; n++ {
		err := c.loopRound(ctx, setup, failure, n)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrUnexpected) || errors.Is(err, errors.ErrUnsupported) || n == c.Rounds:
			return err
		case err != nil:
			setup.print(Event{Event: "failed", Variant: "fenced", Text: "The round failed: " + err.Error()})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// loopRound runs the nth round, and checks what is stored in the end.
func (c Config) loopRound(ctx context.Context, setup *setup, failure Failure, n int) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	lock := fmt.Sprintf("%s/job-%d", cmp.Or(c.Namespace, "demo"), n%jobs+1)
	r := newRound(setup, scenario{failure: failure, workers: workersOf(c.Program)}, "fenced", lock, "")
	r.A.Name, r.B.Name = fmt.Sprintf("worker-%d", n%jobs+1), fmt.Sprintf("worker-%d", (n+1)%jobs+1)
	value, err := r.runAndShow(ctx, fmt.Sprintf("Round %d: %s", n, lock), setup.fencedValue)
	if err == nil && value != r.B.value() {
		err = fmt.Errorf("%w: %q is stored in %s, where %s wrote last", ErrUnexpected, value, lock, r.B.Name)
	}
	return err
}

// Event is something that happened. With --output json it is one line.
type Event struct {
	// Event is round, database, service, servers, gateway, policy, asked, granted, held, unavailable, working, checked, sent, written,
	// rejected, stored, failed or result; or what goes wrong: frozen, thawed, cut, healed, delayed, delivered,
	// heartbeat_failed, lost, resumed, and with Redis also waiting, server (what a server has at the key of the lock),
	// killed, promoted, jumped (its clock), overlap (two leases run); of Access also key (one is made or ended), accepted
	// and refused.
	Event string `json:"event"`
	// Variant is fenced or unfenced.
	Variant string `json:"variant,omitempty"`
	// Actor is the worker that did it: A or B; worker-1 to worker-5 in a Loop; the caller in Access; empty for the demo
	// itself.
	Actor     string     `json:"actor,omitempty"`
	At        time.Time  `json:"at"`
	Token     int64      `json:"token,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Code      string     `json:"code,omitempty"`
	// GrantedToken is the newest token by the fence. Where another service issues them, it is that of the last write.
	GrantedToken int64  `json:"granted_token,omitempty"`
	Value        string `json:"value,omitempty"`
	// Fenced and Unfenced are what each variant stored in the end. OK is true if only the fenced one kept the newer value.
	Fenced   string `json:"fenced,omitempty"`
	Unfenced string `json:"unfenced,omitempty"`
	OK       *bool  `json:"ok,omitempty"`
	// Text is the event in words.
	Text string `json:"text"`
}

// printer prints events as they happen.
type printer struct {
	mu    sync.Mutex
	out   io.Writer
	json  bool
	shown []string // all if empty
	begun time.Time
	// actor is the width of the column of actors.
	actor int
}

func newPrinter(c Config) *printer {
	return &printer{out: c.Out, json: c.JSON, shown: c.Shown, begun: time.Now(), actor: 2}
}

// Narrate calls a demo with what prints its events, whose Actors are at most so long. The demo's context ends after a
// minute, and when nobody reads the output any more.
func (c Config) Narrate(
	ctx context.Context, actorLength int, demonstrate func(ctx context.Context, print func(Event)) error,
) (err error) {
	ctx, ended := endedWithReader(ctx, &c.Out, &err)
	defer ended()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	printer := newPrinter(c)
	printer.actor = actorLength
	return demonstrate(ctx, printer.print)
}

func (n *printer) print(event Event) {
	if len(n.shown) > 0 && !slices.Contains(n.shown, event.Event) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if event.At.IsZero() {
		event.At = time.Now()
	}
	event.At = event.At.UTC()
	if n.json {
		_ = json.NewEncoder(n.out).Encode(event)
		return
	}
	switch event.Event {
	case "round", "result":
		_, _ = fmt.Fprintf(n.out, "\n%s\n", event.Text)
	default:
		_, _ = fmt.Fprintf(n.out, "%7.2fs  %-*s %s\n", event.At.Sub(n.begun).Seconds(), n.actor, event.Actor, event.Text)
	}
}
