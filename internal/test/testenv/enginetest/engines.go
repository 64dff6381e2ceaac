package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// NoPoll is for tests of notifications: polling never comes to help. On a busy machine heartbeats may be late.
var NoPoll = engine.Config{PollInterval: time.Hour, DeadAfter: time.Minute}

// AnswerLimit bounds the wait for an outcome that nothing is in the way of. It takes milliseconds. A waiter that no one
// wakes waits for ever, and shows it soon.
const AnswerLimit = 15 * time.Second

// Engines are several engines on one database, each with connections of its own.
type Engines struct {
	*DB
	All []*Running
}

// Served is an Engine whose Acquire returns the lease.
type Served struct{ *engine.Engine }

// Acquire returns the lease that the Engine stores.
func (s Served) Acquire(ctx context.Context, request store.AcquireRequest) (lease store.Lease, err error) {
	err = s.Engine.Acquire(ctx, &request, &lease)
	return lease, err
}

// Serve returns an Engine that does not run.
func Serve(t *testing.T, on *postgres.Store, config engine.Config) Served {
	t.Helper()
	service, err := engine.New(on, config)
	check(t, err)
	return Served{service}
}

// Running is an Engine whose Run is under way.
type Running struct {
	Served
	Stop func() // ends Run, and waits for that; the waiters stay in their queues
}

// NewEngines returns count Engines that run and listen, on Stores of their own. On a busy machine their statements may
// wait long for locks.
func NewEngines(t *testing.T, b *DB, count int, config engine.Config) *Engines {
	t.Helper()
	s := &Engines{DB: b}
	for range count {
		on := OpenStore(t, postgres.Config{
			DatabaseURL: b.URL, ConnectionsMax: 8, StatementTimeout: time.Minute, LockTimeout: time.Minute,
		})
		s.All = append(s.All, Run(t, on, config))
	}
	return s
}

// Run returns when the engine listens.
func Run(t *testing.T, on *postgres.Store, config engine.Config) *Running {
	t.Helper()
	r := Start(t, on, config)
	await.True(t, "the engine listens", r.Listening)
	return r
}

// Start returns an Engine whose Run has begun. It need not listen yet.
func Start(t *testing.T, on *postgres.Store, config engine.Config) *Running {
	t.Helper()
	service := Serve(t, on, config)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		service.Run(ctx, func(err error) {
			// The faults of the tests cause errors, too. A deadlock or a defect of a statement is never one of them.
			var pgErr *pgconn.PgError
			if errors.As(err, &pgErr) && (pgErr.Code == "40P01" ||
				strings.HasPrefix(pgErr.Code, "42") && !errors.Is(err, store.ErrUnavailable)) {
				t.Errorf("the engine reports: %v", err)
			}
		})
	})
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return &Running{service, stop}
}

// At returns the Engine of an index, modulo their number.
func (s *Engines) At(index int) *Running { return s.All[index%len(s.All)] }

// Count reads one number beside the engines.
func (b *DB) Count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	check(t, b.SQL.QueryRow(await.Context(t), sql, args...).Scan(&n))
	return n
}

// AwaitQueued returns when so many acquires wait for all locks.
func (b *DB) AwaitQueued(t *testing.T, count int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d wait", count), func() bool {
		return b.Count(t,
			"select count(*) from fence.waiters") == count
	})
}

// ExpectQuiet fails the test unless no acquire waits, no lease runs, and PostgreSQL has resolved no deadlock.
func (s *Engines) ExpectQuiet(t *testing.T) {
	t.Helper()
	for i, service := range s.All {
		if n := service.Waiting(); n != 0 {
			t.Errorf("%d acquires still wait in engine %d", n, i)
		}
	}
	for what, sql := range map[string]string{
		"waiters": "select count(*) from fence.waiters",
		"leases that run": "select count(*) from fence.leases l where l.ended_at is null and l.expires_at > " +
			"clock_timestamp()",
		"deadlocks within SQL": "select deadlocks from pg_stat_database where datname = current_database()",
	} {
		if n := s.Count(t, sql); n != 0 {
			t.Errorf("there are %d %s", n, what)
		}
	}
}

// Outcome is what an acquire returned.
type Outcome struct {
	Lease store.Lease
	Err   error
}

// GoAcquire acquires in the background.
func GoAcquire(ctx context.Context, on *Running, request store.AcquireRequest) <-chan Outcome {
	answers := make(chan Outcome, 1)
	go func() {
		lease, err := on.Acquire(ctx, request)
		answers <- Outcome{lease, err}
	}()
	return answers
}

// Queue acquires in the background. It returns when the request is in the queue.
func (s *Engines) Queue(t *testing.T, index int, request store.AcquireRequest) <-chan Outcome {
	t.Helper()
	return s.QueueFor(await.Context(t), t, index, request)
}

// QueueFor is Queue with a context of the caller.
func (s *Engines) QueueFor(ctx context.Context, t *testing.T, index int, request store.AcquireRequest) <-chan Outcome {
	t.Helper()
	if request.Wait == 0 {
		request.Wait = store.WaitMax
	}
	before := s.Count(t, "select count(*) from fence.waiters where owner_id = $1 and lock = $2", request.OwnerID,
		request.Lock)
	answers := GoAcquire(ctx, s.At(index), request)
	await.True(t, request.OwnerID+" waits", func() bool {
		return s.Count(t, "select count(*) from fence.waiters where owner_id = $1 and lock = $2", request.OwnerID,
			request.Lock) > before
	})
	return answers
}

// Acquire acquires a lock by one of the Engines, and fails the test if that fails.
func (s *Engines) Acquire(t *testing.T, index int, request store.AcquireRequest) store.Lease {
	t.Helper()
	lease, err := s.At(index).Acquire(await.Context(t), request)
	check(t, err)
	return lease
}

// Release releases a lease by one of the Engines, and fails the test if that fails.
func (s *Engines) Release(t *testing.T, index int, lease store.Lease) {
	t.Helper()
	check(t, s.At(index).Release(await.Context(t), lease.Ref()))
}

// Granted expects a lease.
func Granted(t *testing.T, answers <-chan Outcome) store.Lease {
	t.Helper()
	got := Answered(t, answers)
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	return got.Lease
}

// Answered returns the outcome of a call, and fails the test after AnswerLimit.
func Answered(t *testing.T, answers <-chan Outcome) Outcome {
	t.Helper()
	return await.ReceiveWithin(t, AnswerLimit, "the acquire returns", answers)
}

// Unanswered expects that the acquire waits.
func Unanswered(t *testing.T, answers <-chan Outcome) {
	t.Helper()
	select {
	case got := <-answers:
		t.Fatalf("the acquire returned %+v, want it to wait", got)
	default:
	}
}

// Describe returns which owners have which leases, and which waiters wait, for a failure message.
func (b *DB) Describe(t testing.TB) (text string) {
	t.Helper()
	const sql = `select string_agg(line, e'\n') from (
		select format('%s has %s %s %s until %s', owner_id, lock, mode, scope, l.expires_at) from fence.leases l where ended_at is null
		union all (
			select format('%s waits for %s %s %s with ticket %s at %s, counts %s', owner_id, lock, mode, scope, ticket, gateway_id, fence.is_waiting(w))
			from fence.waiters w order by ticket)) as lines (line)`
	if err := b.SQL.QueryRow(await.Context(t), sql).Scan(&text); err != nil {
		t.Error(err)
	}
	return text
}

// Waiting returns how many acquires wait in all engines.
func (s *Engines) Waiting() (n int) {
	for _, service := range s.All {
		n += service.Waiting()
	}
	return n
}

// BreakListeners ends the listening connections of all engines, and returns how many there were.
func (s *Engines) BreakListeners(t *testing.T) int {
	return s.Count(t, `select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and application_name = 'fencegate listener'`)
}

// CutListeners is BreakListeners, and returns when every engine has lost its connection. It may have a new one already.
func (s *Engines) CutListeners(t *testing.T) {
	t.Helper()
	var before []uint64
	for _, service := range s.All {
		before = append(before, service.Reconnects())
	}
	s.BreakListeners(t)
	for i, service := range s.All {
		await.True(t, "the connection is cut", func() bool {
			return !service.Listening() || service.Reconnects() > before[i]
		})
	}
}

// OpenSession opens a session through the engine at an index.
func (s *Engines) OpenSession(t *testing.T, at int, owner string, ttl time.Duration) store.Session {
	t.Helper()
	session, err := s.At(at).CreateSession(await.Context(t), store.SessionRequest{OwnerID: owner, TTL: ttl})
	check(t, err)
	return session
}

// Hold is how an owner has what the owner before it in a ring waits for.
type Hold struct {
	Name         string
	Has, Wants   store.AcquireRequest // of the lock named after the position, followed by this Lock
	InSession    bool
	ByTicketOnly bool // an outsider has the lock: the owner is before the other in the queue
}

// Holds are all ways to be in the way.
var Holds = []Hold{
	{Name: "leases"},
	{Name: "a reader in a writer's way", Has: store.AcquireRequest{Mode: store.Shared}},
	{Name: "a writer in a reader's way", Wants: store.AcquireRequest{Mode: store.Shared}},
	{Name: "tickets in the queue", ByTicketOnly: true},
	{Name: "a ticket before a reader", ByTicketOnly: true, Wants: store.AcquireRequest{Mode: store.Shared}},
	{Name: "a name below the subtree", Has: store.AcquireRequest{Lock: "/below/it"},
		Wants: store.AcquireRequest{Scope: store.Subtree}},
	{Name: "the subtree above", Has: store.AcquireRequest{Scope: store.Subtree},
		Wants: store.AcquireRequest{Lock: "/below/it"}},
	{Name: "a ticket below the subtree", ByTicketOnly: true, Has: store.AcquireRequest{Lock: "/below"},
		Wants: store.AcquireRequest{Scope: store.Subtree}},
	{Name: "sessions", InSession: true},
}

// Ring has owners. Each has something, and all but the last wait for what the next has.
type Ring struct {
	*Engines
	Hold
	Prefix  string
	Leases  []store.Lease // of the owners, or of outsiders before them
	Waits   []<-chan Outcome
	InQueue []<-chan Outcome
}

// Owner is the name of the owner of an index, modulo their number.
func (r *Ring) Owner(index int) string { return fmt.Sprint("owner ", index%len(r.Waits)) }

func (r *Ring) request(of store.AcquireRequest, owner, index int) store.AcquireRequest {
	of.Lock = store.Name(fmt.Sprintf("%s/%d", r.Prefix, index%len(r.Waits))) + of.Lock
	of.OwnerID = r.Owner(owner)
	return of
}

// Wanted returns what an owner waits for: what the next has.
func (r *Ring) Wanted(index int) store.AcquireRequest { return r.request(r.Wants, index, index+1) }

// BuildRing has all but the last wait.
func BuildRing(t *testing.T, s *Engines, h Hold, size int) *Ring {
	t.Helper()
	r := &Ring{Engines: s, Hold: h, Prefix: uuid.NewString(), Waits: make([]<-chan Outcome, size)}
	for index := range size {
		request := r.request(h.Has, index, index)
		switch {
		case h.InSession:
			session, err := s.At(index).CreateSession(await.Context(t), store.SessionRequest{OwnerID: request.OwnerID})
			check(t, err)
			request.SessionID = session.ID
		case h.ByTicketOnly:
			outsider := request
			outsider.OwnerID = "outsider"
			r.Leases = append(r.Leases, s.Acquire(t, index, outsider))
			r.InQueue = append(r.InQueue, s.Queue(t, index+1, request))
			continue
		}
		r.Leases = append(r.Leases, s.Acquire(t, index, request))
	}
	for index := range size - 1 {
		r.Waits[index] = s.Queue(t, index, r.Wanted(index))
	}
	return r
}

// Unwind makes the last owner release its lease, and the others in turn. All are granted their locks.
func (r *Ring) Unwind(t *testing.T) {
	t.Helper()
	if r.ByTicketOnly {
		for index, lease := range r.Leases {
			r.Release(t, index, lease)
			r.Leases[index] = Granted(t, r.InQueue[index])
		}
	}
	for index := len(r.Waits) - 1; index >= 0; index-- {
		r.Release(t, index, r.Leases[index])
		if index > 0 {
			lease := Granted(t, r.Waits[index-1])
			r.Release(t, index, lease)
		}
	}
}
