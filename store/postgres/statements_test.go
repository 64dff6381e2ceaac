package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestSchemaChangesBeneathStatements checks that a change of the schema beneath prepared statements, as by a restore or
// an upgrade, fails no call.
func TestSchemaChangesBeneathStatements(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire, wrote(with(newest, sequence(1))))
	on := openStore(t, postgres.Config{DatabaseURL: s.URL, LockTimeout: time.Minute, StatementTimeout: time.Minute})
	read := func() error { _, err := on.Record(t.Context(), s.lock, with(newest)(s).Key); return err }
	// Several connections prepare the statement.
	_, unlock := s.LockedBy(t, "lock table fence.records")
	const readers = 2 // as many as have a turn to wait for a lock at the same time
	reads := make(chan error, readers)
	for range readers {
		go func() { reads <- read() }()
	}
	await(t, "the readers wait for the locked table", func() bool {
		return s.Count(t, "select count(*) from pg_stat_activity where datname = current_database() and "+
			"wait_event_type = 'Lock'") == readers
	})
	unlock()
	for range readers {
		if err := <-reads; err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []string{
		// 0A000: cached plan must not change result type
		"alter table fence.records alter column content_type type varchar(100)",
		"alter table fence.records alter column content_type type text",
	} {
		s.Exec(t, change)
		for range readers {
			if err := read(); err != nil {
				t.Errorf("after %q: %v", change, err)
			}
		}
	}
}

// TestRolledBackCallsAreRetried checks that every kind of call that the server rolls back because of concurrent
// transactions is sent again, at one level: not more than six times.
func TestRolledBackCallsAreRetried(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "create sequence public.tries")
	b.Exec(t, "create table public.undo (code text, times bigint)")
	b.Exec(t, `create function public.undo() returns trigger language plpgsql as $$
		declare
			v_undo public.undo;
		begin
			select * into v_undo from public.undo;
			if nextval('public.tries') <= v_undo.times then
				raise 'as if others had been first' using errcode = v_undo.code;
			end if;
			return null;
		end $$`)
	for _, table := range []string{"fences", "leases", "sessions", "records", "gateways", "waiters", "watched"} {
		b.Exec(t, "create trigger undo before insert or update or delete on fence."+table+
			" for each statement execute function public.undo()")
	}
	const triesMax = 6
	for _, c := range undoable(patient(t), t, b) {
		for number, undo := range []struct {
			code  string
			times int
			fails bool
		}{{"40P01", 0, false}, {"40P01", triesMax - 1, false}, {"40001", triesMax - 1, false}, {"40001", 100, true}} {
			b.Exec(t, "truncate public.undo")
			b.Exec(t, "alter sequence public.tries restart")
			b.Exec(t, "insert into public.undo values ($1, $2)", undo.code, undo.times)
			err := c.call(int64(number) + 1)
			if undo.fails {
				err = expectUnavailable(err, store.OutcomeNotApplied)
			}
			if err != nil {
				t.Errorf("%s, undone %d times with %s: %v", c.name, undo.times, undo.code, err)
			}
			tries := b.Count(t, "select last_value from public.tries")
			if undo.fails && tries != triesMax {
				t.Errorf("%s was sent %d times, want %d", c.name, tries, triesMax)
			}
		}
		b.Exec(t, "truncate public.undo")
	}
}

type undoableCall struct {
	name string
	call func(number int64) error
}

// undoable are calls of each kind that change something.
func undoable(ctx context.Context, t *testing.T, b *testbed) []undoableCall {
	t.Helper()
	service := runService(t, b.Store, engine.Config{}).Engine
	var lease store.Lease
	var session store.Session
	write := func(number int64) store.Write { return enginetest.Put(lease, number, "v") }
	return []undoableCall{
		{"acquire", func(number int64) error {
			lock := store.Name("lock")
			if number > 1 {
				lock = numbered("lock", int(number))
			}
			got, err := b.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "o", TTL: time.Hour})
			if lock == "lock" {
				lease = got
			}
			return err
		}},
		{"renew", func(int64) error { _, err := b.Renew(ctx, lease.Ref(), 0); return err }},
		{"write", func(number int64) error { _, err := service.Commit(ctx, write(number)); return err }},
		{"writes", func(number int64) error { _, err := b.Write(ctx, []store.Write{write(number + 10)}); return err }},
		{"transaction", func(number int64) error {
			_, err := b.Transact(ctx, transactionOf(write(number+20)))
			return err
		}},
		{"session", func(int64) error {
			made, err := b.CreateSession(ctx, store.SessionRequest{OwnerID: "o", TTL: time.Hour})
			if err == nil {
				session = made
			}
			return err
		}},
		{"keepalive", func(int64) error { _, err := b.KeepAlive(ctx, session.ID); return err }},
		{"watch", func(number int64) error {
			watch, err := service.Watch(ctx, numbered("watched", int(number)))
			if err == nil {
				watch.Close()
			}
			return err
		}},
	}
}

// TestOutcomeOfErrors checks that the outcome is not_applied only for errors that PostgreSQL reports before the commit,
// and no pooler after it.
func TestOutcomeOfErrors(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	s.Exec(t, "create function public.fail() returns trigger language plpgsql as $$ begin raise 'as if' using errcode = "+
		"convert_from(new.value, 'LATIN1'); end $$")
	s.Exec(t, "create trigger fail before insert or update on fence.records for each row execute function public.fail()")
	for outcome, states := range map[store.Outcome][]string{
		store.OutcomeUnknown: {"08000", "08003", "08006", "08P01", "58000", "58030", "57P01", "57P02", "57P05", "25P04"},
		store.OutcomeNotApplied: {
			"53100", "53200", "53300", "28000", "25006", "25P03", "55P03", "57014", "57P03", "40001", "40P01", "42P01",
		},
	} {
		for _, state := range states {
			_, err := bySet(t.Context(), s.Store, with(newest, value(state))(s))
			if err := expectUnavailable(err, outcome); err != nil {
				t.Error(fmt.Errorf("%s: %w", state, err))
			}
		}
	}
}

// TestPooler checks that a Store behind PgBouncer in transaction mode keeps leases as a provider must, and that it
// refuses one without a direct URL.
func TestPooler(t *testing.T) {
	t.Parallel()
	pooler := pgtest.NewPooler(t, pgtest.Migrated(t))
	t.Run("without a direct URL", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, postgres.Config{DatabaseURL: pooler.URL(t, pgtest.Migrated(t))})
		err := s.CheckSessions(t.Context())
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "--listen-url") {
			t.Errorf("CheckSessions returned %v, want ErrInvalid that names --listen-url", err)
		}
	})
	b := newTestbed(t)
	s := openStore(t, postgres.Config{DatabaseURL: pooler.URL(t, b.URL), ListenURL: b.URL})
	if err := s.Await(t.Context(), 10*time.Second, func(error) {}); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSessions(t.Context()); err != nil {
		t.Fatal(err)
	}
	drive.Scenarios(t, randomTarget(t, b, enginetest.Run(t, s, engine.Config{})), false)
}

// TestReloadedSynchronousCommit checks that acknowledged calls wait for the disk (P9) also if synchronous_commit is
// changed by reload under a running Store, and for standbys if the setting says so (P14).
func TestReloadedSynchronousCommit(t *testing.T) {
	t.Parallel()
	b, _ := newCrashbed(t, pgtest.Setting("synchronous_commit", "")) // or the command line would win over what is reloaded
	ctx := patient(t)
	b.Exec(t, "create table public.commits (what text, setting text)")
	// A deferred trigger runs when its transaction commits.
	b.Exec(t, `create function public.note() returns trigger language plpgsql as $$
		begin
			insert into public.commits values (tg_table_name, current_setting('synchronous_commit'));
			return null;
		end $$`)
	for _, table := range []string{"fences", "leases", "sessions", "records", "policies"} {
		b.Exec(t, `create constraint trigger note after insert or update or delete on fence.`+table+`
			deferrable initially deferred for each row execute function public.note()`)
	}
	service := runService(t, b.Store, engine.Config{}).Engine
	for i, c := range []struct{ setting, want string }{{"on", "on"}, {"off", "on"}, {"remote_apply", "remote_apply"},
		{"local", "local"}} {
		b.Exec(t, "alter system set synchronous_commit = "+c.setting)
		b.Exec(t, "select pg_reload_conf()")
		await(t, "the configuration is reloaded", func() bool {
			var is string
			return b.SQL.QueryRow(ctx, "show synchronous_commit").Scan(&is) == nil && is == c.setting
		})
		for _, step := range acknowledged(ctx, t, b, enginetest.Served{Engine: service}, numbered("lock", i)) {
			b.Exec(t, "truncate public.commits")
			if err := step.call(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			var settings []string
			err := b.SQL.QueryRow(ctx, "select array_agg(distinct setting) from public.commits").Scan(&settings)
			if err != nil || !slices.Equal(settings, []string{c.want}) {
				t.Errorf("with %s, %s is committed with %s (%v), want %s", c.setting, step.name, fmt.Sprint(settings), err, c.want)
			}
		}
	}
}

// acknowledged are calls of each kind whose effect must be on disk when they return.
func acknowledged(ctx context.Context, t *testing.T, b *testbed, service enginetest.Served,
	lock store.Name) []namedCall {
	t.Helper()
	var lease, other store.Lease
	var session store.Session
	write := func(number int64) store.Write { return enginetest.Put(lease, number, "v") }
	policy := store.Policy{Prefix: "policy", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}
	return []namedCall{
		{"acquire", func() (err error) {
			lease, err = service.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "o", TTL: time.Hour})
			return err
		}},
		{"write", func() error { _, err := service.Commit(ctx, write(1)); return err }},
		{"writes", func() error { _, err := b.Write(ctx, []store.Write{write(2), write(3)}); return err }},
		{"transaction", func() error {
			_, err := b.Transact(ctx, transactionOf(write(4)))
			return err
		}},
		{"grant to a waiter", func() error {
			granted := make(chan error, 1)
			go func() {
				var err error
				other, err = service.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "waiter", TTL: time.Hour,
					Wait: store.WaitMax})
				granted <- err
			}()
			await(t, "the second acquire waits", func() bool { return service.Waiting() == 1 })
			if err := service.Release(ctx, lease.Ref()); err != nil {
				return err
			}
			return <-granted
		}},
		{"release", func() error { return service.Release(ctx, other.Ref()) }},
		{"session", func() (err error) {
			session, err = b.CreateSession(ctx, store.SessionRequest{OwnerID: "o", TTL: time.Hour})
			return err
		}},
		{"acquire in a session", func() error {
			_, err := b.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "o", SessionID: session.ID})
			return err
		}},
		{"end of a session", func() error { _, err := b.EndSession(ctx, session.ID); return err }},
		{"acquire again", func() error {
			_, err := b.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "o", TTL: time.Hour})
			return err
		}},
		{"break", func() error { _, err := b.Break(ctx, lock, "a reason"); return err }},
		{"policy", func() error { return b.PutPolicy(ctx, policy) }},
		{"no policy", func() error { return b.DeletePolicy(ctx, policy.Prefix) }},
	}
}
