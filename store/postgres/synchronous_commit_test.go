package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

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
		for _, step := range acknowledged(ctx, t, b, service, numbered("lock", i)) {
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
func acknowledged(ctx context.Context, t *testing.T, b *testbed, service *engine.Engine,
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
