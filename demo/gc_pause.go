package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/lockclient/pgxguard"
)

// GCPause shows a worker whose own runtime stops, and with it its heartbeat, for longer than its lease: a garbage
// collection waits for a loop that can't be interrupted. The outcome is that of [Zombie.Run].
func GCPause(ctx context.Context, config Config) error {
	return config.Run(ctx, &gcPause{})
}

type gcPause struct {
	NoFailure

	enough *os.File // its first byte tells the loop of A whether it has computed enough
}

func (g *gcPause) Prepare(_ context.Context, r *Round) (err error) {
	g.Stop()
	if g.enough, err = os.CreateTemp("", "fencegate-demo-"); err != nil {
		return err
	}
	r.A.Heartbeat, r.A.Busy = true, g.enough.Name()
	r.environmentOfA = []string{"GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=2"}
	return g.write(0)
}

func (g *gcPause) Heal(context.Context, *Round) error { return g.write(1) }

func (g *gcPause) write(enough byte) error {
	_, err := g.enough.WriteAt([]byte{enough, 0, 0, 0}, 0)
	return err
}

func (g *gcPause) Stop() {
	if g.enough != nil {
		_ = errors.Join(g.enough.Close(), os.Remove(g.enough.Name()))
		g.enough = nil
	}
}

// pauses is the metric of the time from a garbage collection's wish to stop the world until the world runs again.
const pauses = "/sched/pauses/total/gc:seconds"

// busyMax ends the loop, after a minute or so, of a worker whose demo was killed.
const busyMax = 1 << 34

// workBusy computes in a loop without a function call, beside garbage collections. A collection must stop every goroutine
// first. This one can't be stopped, given GODEBUG=asyncpreemptoff=1: so the collection waits for it, and all the others,
// that of the heartbeat among them, wait for the collection. Such a process can't read a message either: the file is how
// it learns that it has computed enough.
func (w Worker) workBusy(emit func(Event)) error {
	enough, unmap, err := mapNumber(w.Busy)
	if err != nil {
		return err
	}
	defer unmap()
	emit(Event{Event: "working", Text: "works on it, in a loop that its runtime can't interrupt; a garbage collection begins"})

	var computed atomic.Bool
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for !computed.Load() {
			runtime.GC()
		}
	})
	for i := 0; i < busyMax && atomic.LoadUint32(enough) == 0; i++ { //nolint:revive // this is the loop
	}
	computed.Store(true)
	collecting.Wait()
	emit(Event{Event: "resumed", Text: fmt.Sprintf(
		"goes on: its runtime had stopped the world, and its heartbeat, for more than %s", longestPause())})
	return nil
}

// longestPause returns the lower bound of the longest pause for a garbage collection so far.
func longestPause() time.Duration {
	samples := []metrics.Sample{{Name: pauses}}
	metrics.Read(samples)
	longest := 0.0
	histogram := samples[0].Value.Float64Histogram()
	for i, count := range histogram.Counts {
		if count > 0 {
			longest = histogram.Buckets[i]
		}
	}
	return time.Duration(longest * float64(time.Second)).Round(10 * time.Millisecond)
}

// Zombie shows a worker that is frozen until its lease has expired, wakes, and writes.
type Zombie struct {
	Config

	// Service, if set, names another lock service that grants the locks: "etcd". ServiceName describes it. Workers is
	// the command that runs a worker of it, and takes the flags of "demo worker".
	Service, ServiceName string
	Workers              []string
}

// Run runs both variants and prints the result. It returns nil only if the fenced variant kept the value of B and the
// unfenced one lost it, and ErrUnexpected otherwise. If ctx ends before, it returns the cause.
//
// With Gateways, it returns nil after the last round or when ctx ends, and ErrUnexpected as soon as a zombie's write was
// stored.
func (z Zombie) Run(ctx context.Context) error {
	scenario := scenario{failure: frozen{}, workers: z.Workers}
	if z.Service != "" {
		prefix := "demo/" + z.Service + z.Suffix
		scenario.lock = prefix + "/job-%d"
		scenario.fenced = fmt.Sprintf("With the fence: %s grants the lock, every write carries its number, and PostgreSQL "+
			"checks it", z.Service)
		scenario.prepare = func(ctx context.Context, setup *setup) (undo func(), err error) {
			setup.print(Event{Event: "service", Text: "the lock service: " + z.ServiceName})
			return setup.setExternal(ctx, prefix)
		}
	}
	return z.run(ctx, scenario)
}

// frozen freezes A.
type frozen struct{ NoFailure }

func (frozen) Strike(ctx context.Context, r *Round) error {
	if err := r.processA.freeze(ctx); err != nil {
		return err
	}
	r.Tell(r.A.Name, Event{Event: "frozen", Text: "is frozen (SIGSTOP) in the middle of it"})
	return nil
}

func (frozen) Heal(_ context.Context, r *Round) error {
	r.Tell(r.A.Name, Event{Event: "thawed", Text: "is thawed (SIGCONT) and goes on as if nothing had happened"})
	return r.processA.thaw()
}

// Service is a lock service other than fencegate.
type Service interface {
	// Acquire waits for the lock. The service grants it to another process once this one has been frozen for ttl.
	Acquire(ctx context.Context, lock string, ttl time.Duration) (Grant, error)
}

// Grant is a lock that a Service has granted.
type Grant struct {
	// Token is the number that fencegate takes as fencing token. Number says what it is: "create revision".
	Token  int64
	Number string
}

// acquireFromService is acquire for a Service.
func (w Worker) acquireFromService(ctx context.Context, emit func(Event)) (token int64, err error) {
	emit(Event{Event: "asked", Text: fmt.Sprintf("asks %s for %s, and waits while another has it", w.ServiceName, w.Lock)})
	grant, err := w.Service.Acquire(ctx, w.Lock, w.TTL)
	if err != nil {
		return 0, fmt.Errorf("acquire %s from %s: %w", w.Lock, w.ServiceName, err)
	}
	emit(Event{Event: "granted", Token: grant.Token, Text: fmt.Sprintf(
		"is granted %s by %s with %s %d, and a TTL of %s", w.Lock, w.ServiceName, grant.Number, grant.Token, w.TTL)})
	return grant.Token, nil
}

// setExternal sets the policy that another service issues the tokens of the name and all below. The func that it
// returns removes the policy.
func (s *setup) setExternal(ctx context.Context, prefix string) (remove func(), err error) {
	client, err := s.connect(s.urls[0])
	if err != nil {
		return nil, err
	}
	if _, err = admin.New(client).PutPolicy(ctx, prefix, api.PolicyRequest{Authority: "external"}); err != nil {
		client.Close()
		return nil, err
	}
	s.print(Event{Event: "policy", Text: "the policy of " + prefix + ": authority external"})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = admin.New(client).DeletePolicy(ctx, prefix)
		client.Close()
	}, nil
}

const (
	fencedJobs, unfencedJobs = "fenced", "unfenced"
	// claimJobs is how many jobs each table has, and claimMax how many a worker claims at once: A takes the first ones.
	claimJobs, claimMax = 4, 2
)

// Claim shows a worker that is frozen until another has done the jobs that it had claimed, wakes, and completes them.
// It returns nil only if each job of the fenced table was done once, and those of the frozen worker in the unfenced
// table twice, and ErrUnexpected otherwise. If ctx ends before, it returns the cause.
func Claim(ctx context.Context, config Config) error {
	failure := claimed{}
	return config.run(ctx, scenario{failure: failure, prepare: func(ctx context.Context, s *setup) (func(), error) {
		_, err := s.database.Exec(ctx, fmt.Sprintf(`
			drop table if exists fencegate_demo.fenced_jobs, fencegate_demo.unfenced_jobs;
			create table fencegate_demo.fenced_jobs (id integer primary key, done_by text[] not null default '{}');
			create table fencegate_demo.unfenced_jobs (
				id integer primary key, done_by text[] not null default '{}',
				locked_until timestamptz not null default '-infinity');
			insert into fencegate_demo.fenced_jobs select generate_series(1, %[1]d);
			insert into fencegate_demo.unfenced_jobs select generate_series(1, %[1]d);
			select fence.protect('fencegate_demo.fenced_jobs', 'demo-jobs%[2]s/{id}')`, claimJobs, config.Suffix))
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			_, _ = s.database.Exec(ctx, "select fence.unprotect('fencegate_demo.fenced_jobs')")
		}, err
	}, variants: func(ctx context.Context, s *setup) error {
		fenced, err := failure.runOn(ctx, s, config.DatabaseURL, fencedJobs,
			"With the fence: fence.claim grants a lease on each job, and its token is checked at the completion")
		if err != nil {
			return err
		}
		unfenced, err := failure.runOn(ctx, s, config.DatabaseURL, unfencedJobs,
			`Without the fence: "for update skip locked", and a deadline for each job`)
		if err != nil {
			return err
		}
		return concludeClaims(s.printer, fenced, unfenced)
	}})
}

// claimed freezes A when it has claimed jobs. After that, A waits for the round to let it complete them.
type claimed struct{ frozen }

func (claimed) Prepare(_ context.Context, r *Round) error {
	r.A.Told, r.A.Jobs, r.B.Jobs = true, r.variant, r.variant
	return nil
}

func (c claimed) Heal(ctx context.Context, r *Round) error {
	if err := c.frozen.Heal(ctx, r); err != nil {
		return err
	}
	return r.ReleaseA()
}

// runOn runs a round on a table, and returns by whom each job was done.
func (c claimed) runOn(ctx context.Context, s *setup, databaseURL, jobs, title string) (doneBy []string, err error) {
	s.print(Event{Event: "round", Variant: jobs, Text: title})
	scenario := scenario{failure: c, workers: workersOf(s.program)}
	if err := newRound(s, scenario, jobs, "", databaseURL).run(ctx); err != nil {
		return nil, err
	}
	rows, err := s.database.Query(ctx,
		"select array_to_string(done_by, ', then by ') from fencegate_demo."+jobs+"_jobs order by id")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// concludeClaims prints what is stored in both tables.
func concludeClaims(printer *printer, fenced, unfenced []string) error {
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%-3s  %-20s  %s\n", "job", "done, with the fence", "done, without it")
	ok := true
	for i := range fenced {
		_, _ = fmt.Fprintf(&text, "%-3d  %-20s  %s\n", i+1, "by "+fenced[i], "by "+unfenced[i])
		twice := "B"
		if i < claimMax {
			twice = "B, then by A"
		}
		ok = ok && fenced[i] == "B" && unfenced[i] == twice
	}
	result := "Result: with the fence each job was done once; without it the frozen worker did its jobs a second time."
	if !ok {
		result = "Result: UNEXPECTED."
	}
	printer.print(Event{Event: "result", OK: &ok, Fenced: strings.Join(fenced, "; "),
		Unfenced: strings.Join(unfenced, "; "), Text: text.String() + "\n" + result})
	if !ok {
		return ErrUnexpected
	}
	return nil
}

// job is one that a worker has claimed. Without the fence it has an ID alone, and its deadline.
type job struct {
	ID       int
	Until    time.Time
	Resource string
	LeaseID  string
	Token    int64
}

// claims are how jobs are claimed: $1 is how many, $2 the worker, $3 the TTL in milliseconds.
var claims = map[string]string{
	fencedJobs: `
		select (job ->> 'id')::integer, expires_at, resource, lease_id::text, fencing_token
		from fence.claim('fencegate_demo.fenced_jobs', $1, $2, $3, $$done_by = '{}'$$)`,
	unfencedJobs: `
		update fencegate_demo.unfenced_jobs set locked_until = clock_timestamp() + $3::integer * interval '1 ms'
		where id in (
			select id from fencegate_demo.unfenced_jobs where done_by = '{}' and locked_until < clock_timestamp()
			order by id limit $1 for update skip locked)
		returning id, locked_until, $2::text, '', 0::bigint`,
}

// doJobs claims jobs and completes them until all are done. A worker that is Told to complete them claims once.
func (w Worker) doJobs(ctx context.Context, emit func(Event)) error {
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for waits := false; ; {
		rows, err := conn.Query(ctx, claims[w.Jobs], claimMax, w.Name, w.TTL.Milliseconds())
		if err != nil {
			return err
		}
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
		if err != nil {
			return err
		}
		if len(jobs) > 0 {
			if err := w.doClaimed(ctx, conn, jobs, emit); err != nil || w.Told {
				return err
			}
			continue
		}
		var left bool
		err = conn.QueryRow(ctx,
			"select exists (select from fencegate_demo."+w.Jobs+"_jobs where done_by = '{}')").Scan(&left)
		if err != nil || !left {
			return err
		}
		if !waits {
			emit(Event{Event: "held", Text: "finds no job that it can claim; waits"})
			waits = true
		}
		time.Sleep(retryInterval)
	}
}

// doClaimed works on jobs, and completes them.
func (w Worker) doClaimed(ctx context.Context, conn *pgx.Conn, jobs []job, emit func(Event)) error {
	var ids []string
	for _, job := range jobs {
		ids = append(ids, fmt.Sprint(job.ID))
	}
	emit(Event{Event: "granted", ExpiresAt: &jobs[0].Until, Value: strings.Join(ids, ", "), Text: fmt.Sprintf(
		"claims the jobs %s, until %s", strings.Join(ids, ", "), Clock(jobs[0].Until))})
	if err := w.work(func(event Event) { event.Text = "works on them"; emit(event) }); err != nil {
		return err
	}
	for _, job := range jobs {
		event := Event{Event: "written", Token: job.Token, Value: fmt.Sprint(job.ID)}
		event.Text = fmt.Sprintf("completes job %d", job.ID)
		if job.Token != 0 {
			event.Text += fmt.Sprintf(" with token %d.1", job.Token)
		}
		err := w.complete(ctx, conn, job)
		var problem *api.Problem
		switch {
		case err == nil:
			event.Text += ": accepted"
		case errors.Is(err, lockclient.ErrTokenStale) && errors.As(err, &problem) && problem.GrantedToken != nil:
			event.Event, event.Code, event.GrantedToken = "rejected", string(problem.Code), *problem.GrantedToken
			event.Text += fmt.Sprintf(": REJECTED, %s: the newest token is %d", problem.Code, *problem.GrantedToken)
		default:
			return err
		}
		emit(event)
	}
	return nil
}

// complete notes that this worker has done a job: with the fence, in the transaction that its token admits.
func (w Worker) complete(ctx context.Context, conn *pgx.Conn, job job) error {
	update := "update fencegate_demo." + w.Jobs + "_jobs set done_by = done_by || $2::text where id = $1"
	if w.Jobs == unfencedJobs {
		_, err := conn.Exec(ctx, update, job.ID, w.Name)
		return err
	}
	return pgxguard.Error(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select fence.guard($1, $2, 1)", job.Resource, job.Token)
		if err == nil {
			_, err = tx.Exec(ctx, update, job.ID, w.Name)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "select fence.release($1, $2, $3, $4)", job.Resource, w.Name, job.LeaseID, job.Token)
		}
		return err
	}))
}
