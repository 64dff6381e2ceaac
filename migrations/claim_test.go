package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// claimScripts are about fence.claim. Each claim shows how many rows it took, and which.
var claimScripts = []script{
	{"a claim takes the rows that nobody holds, in order", `
		A create table jobs (id integer primary key, kind text, done boolean not null default false);
			insert into jobs select g, 'k' || g % 2 from generate_series(1, 6) g; select fence.protect('jobs', 'jobs/{id}');
			grant select, update on jobs to $app
		A set role $app; select count(distinct lease_id), string_agg(resource || ' ' || (job ->> 'kind'), ', ')
			from fence.claim('jobs', 2, 'A', condition => 'not done')  -- 1|jobs/1 k1, jobs/2 k0
		B set role $app; select string_agg(resource, ' ')
			from fence.claim('jobs', 9, 'B', 30000, $$not done and kind = 'k1'$$, 'id desc')  -- jobs/5 jobs/3
		B select string_agg(lock || ' ' || owner_id || ' ' || table_name, ', ' order by lock)
			from fence.held where table_name = 'public.jobs'
			-- jobs/1 A public.jobs, jobs/2 A public.jobs, jobs/3 B public.jobs, jobs/5 B public.jobs
		A select fencing_token from fence.held where lock = 'jobs/1'  -- $t
		A reset role; select test.lease('jobs/1', $t)  -- $id
		A set role $app; begin; select fence.guard('jobs/1', $t, 1, '$id'); update jobs set done = true where id = 1;
			select status from fence.release('jobs/1', 'A', '$id', $t); commit
		A select string_agg(resource, ' ') from fence.claim('jobs', 9, 'A', 30000, 'not done')  -- jobs/4 jobs/6
		A select count(*) from fence.claim('jobs', 9, 'A', 30000, 'not done')  -- 0
		A select string_agg(resource, ' ') from fence.claim('jobs', 9, 'A')  -- jobs/1`},
	{"a lost row is claimed by another, and its late completion rejected", `
		A create table taken (id integer primary key, done boolean not null default false);
			insert into taken values (1), (2); select fence.protect('taken', 'taken/{id}')
		A select min(fencing_token) from fence.claim('taken', 2, 'A', 30000, 'not done')  -- $t
		B select count(*) from fence.claim('taken', 2, 'B', 30000, 'not done')  -- 0
		B select test.expire('taken/1'); select string_agg(resource, ' ') from fence.claim('taken', 2, 'B', 30000,
			'not done')  -- taken/1
		B select count(distinct lease_id) from fence.leases where lock = 'taken/1'  -- 2
		B select fencing_token from fence.held where lock = 'taken/1'  -- $new
		A begin; select fence.guard('taken/1', $t, 1)  -- !LF103 superseded
		B begin; select fence.guard('taken/1', $new, 1); update taken set done = true where id = 1; commit`},
	{"of two claims at once, one skips the rows of the other", `
		A create table race (id integer primary key, done boolean not null default false);
			insert into race values (1), (2), (3); select fence.protect('race', 'race/{id}')
		A begin; select resource from fence.claim('race', 1, 'A', 30000, 'not done')  -- race/1
		B set lock_timeout = '2s'; select resource from fence.claim('race', 1, 'B', 30000, 'not done')  -- race/2
		A rollback
		B select string_agg(resource, ' ') from fence.claim('race', 9, 'B', 30000, 'not done')  -- race/1 race/3
		A select test.expire('race/1'), test.expire('race/2'); begin;
			select fence.guard('race/1', fencing_token, 1) from fence.leases where lock = 'race/1';
			update race set done = true where id = 1
		B select string_agg(resource, ' ') from fence.claim('race', 9, 'B', 30000, 'not done')  -- race/2
		A commit
		B select count(*) from fence.claim('race', 9, 'B', 30000, 'not done')  -- 0`},
	{"a claim passes neither a waiter, nor a subtree lease, nor another's lease", `
		A create table busy (id integer primary key); insert into busy values (1), (2), (3), (4);
			select fence.protect('busy', 'busy/{id}'); select test.grant('busy/1', 'shared');
			select test.acquire('busy/2', 'A', p_session => test.session('A'))
		A insert into fence.gateways values ('00000000-0000-0000-0000-000000000001', 'infinity')
		A insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			values ('busy/3', '00000000-0000-0000-0000-000000000001', 'W', 'exclusive', 'node', 1000, now(), 'infinity')
		B select string_agg(resource, ' ') from fence.claim('busy', 1, 'B')  -- busy/4
		B select count(*) from fence.fences where resource = 'busy/3' -- 0
		A create table under (id integer primary key); insert into under values (1); select fence.protect('under', 'under/{id}');
			select test.grant('under', 'exclusive', 'subtree')
		B select count(*) from fence.claim('under', 9, 'B')  -- 0
		A select test.expire('under')
		B select count(*) from fence.claim('under', 9, 'B')  -- 1`},
	{"a claim locks names below 64 others at most", `
		A create table wide (tenant integer, id integer); insert into wide select g, 1 from generate_series(1, 100) g;
			select fence.protect('wide', '{tenant}/wide/{id}')
		A begin; select count(*) from fence.claim('wide', 100, 'A')  -- 64
		A select count(*) from fence.claim('wide', 100, 'A')  -- !54000
		A rollback; begin; select count(*) from fence.claim('wide', 60, 'A')  -- 60
		A select count(*) from fence.claim('wide', 40, 'A')  -- 4
		A rollback; select count(*) from fence.claim('wide', 64, 'A')  -- 64
		A update fence.leases set expires_at = now() where lock like '%/wide/%';
			select count(*) from fence.claim('wide', 65, 'A')  -- 64
		A select count(*) from fence.claim('wide', 65, 'A')  -- 36`},
	{"a claim waits for nobody", `
		A create table free (id integer primary key); insert into free select generate_series(1, 9);
			select fence.protect('free', 'free/{id}'); select test.grant('free/2'), test.grant('free/3'), test.expire('free/2'),
			test.expire('free/3'); select test.grant('free/4', 'exclusive', 'subtree')  -- $s
		A select fence.guard('free/4/below', $s, 1); select test.expire('free/4'); begin; select fence.acquire('free/1', 'A');
			select fence.guard('free/2', granted_token, 1) from fence.fences where resource = 'free/2';
			select from fence.leases where lock = 'free/3' for update; select fence.guard('free/4/below', $s, 2)
		B set lock_timeout = '2s'; select string_agg(resource, ' ') from fence.claim('free', 4, 'B')
			-- free/5 free/6 free/7 free/8
		A rollback
		B select string_agg(resource, ' ') from fence.claim('free', 9, 'B')  -- free/1 free/2 free/3 free/4 free/9
		A create table roofed (id integer primary key); insert into roofed values (1), (2);
			select fence.protect('roofed', 'roofed/{id}'); begin; select fence.acquire('roofed', 'A', scope => 'subtree')
		B select count(*) from fence.claim('roofed', 1, 'B')  -- 0
		A rollback
		B select count(*) from fence.claim('roofed', 9, 'B')  -- 2
		A create table shares (id integer primary key, key text); insert into shares values (1, 'a'), (2, 'a'), (3, 'b');
			select fence.protect('shares', 'shares/{key}'); begin; select count(*) from fence.claim('shares', 1, 'A', order_by => 'id')
		B select string_agg(resource, ' ') from fence.claim('shares', 1, 'B')  -- shares/b
		A rollback`},
	{"a claim of few goes past the rows whose fences are locked, until it has some", `
		A create table past (id integer primary key); insert into past select generate_series(1, 20);
			select fence.protect('past', 'past/{id}'); select count(*) from fence.claim('past', 10, 'A', 100)  -- 10
		A select test.expire('past/' || id) from past; begin; select fence.guard(lock, fencing_token, 1) from fence.leases
			where lock like 'past/%' order by lock
		B set lock_timeout = '2s'; select resource from fence.claim('past', 1, 'B')  -- past/11
		B select string_agg(resource, ' ') from fence.claim('past', 4, 'B')  -- past/12 past/13 past/14 past/15
		A rollback
		B select string_agg(resource, ' ') from fence.claim('past', 1, 'B')  -- past/1`},
	{"condition and order mean the columns of the table, whatever their names are", `
		A create table named (id integer primary key, j integer, c integer, job text, resource integer, named text,
			to_jsonb integer, done boolean not null default false);
			insert into named values (1, 11, 3, 'one', 10, 'x', 8), (2, 12, 4, 'two', 9, 'y', 7);
			select fence.protect('named', 'named/{id}')
		A begin; select resource, job from fence.claim('named', 1, 'A')  
			-- named/1|{"c": 3, "j": 11, "id": 1, "job": "one", "done": false, "named": "x", "resource": 10, "to_jsonb": 8}
		A rollback; begin; select resource from fence.claim('named', 1, 'A', order_by => 'resource')  -- named/2
		A rollback; begin; select resource from fence.claim('named', 1, 'A', order_by => 'to_jsonb --the newest')  -- named/2
		A rollback; begin; select resource from fence.claim('named', 1, 'A', condition => 'c > 3 and job <> $$1$$')  -- named/2
		A rollback; begin; select resource from fence.claim('named', 1, 'A', condition => 'j > 11 and named = $$y$$ --open')
			-- named/2
		A rollback; begin; select resource from fence.claim('named', 1, 'A', condition => 'named.done = false',
			order_by => '"public"."named"."id" desc')  -- named/2
		A rollback; begin; select resource from fence.claim('named', 1, 'A', condition => 'id <> $' || 1)  -- !42P02
		A rollback; begin; select resource from fence.claim('named', 1, 'A', condition => 'j.done')  -- !42P01
		A rollback; create table "Odd ""Name" (like named); insert into "Odd ""Name" select * from named;
			select fence.protect('"Odd ""Name"', 'odd/{id}/{j}'); select resource from fence.claim('"Odd ""Name"', 1, 'A', 30000,
			'"Odd ""Name".id = 2')  -- odd/2/12`},
	{"finished jobs are deleted in bulk: a claim takes them, and leaves the others", `
		A create table bulk (id integer primary key, done boolean not null default false);
			insert into bulk select g, g % 2 = 0 from generate_series(1, 40) g; select fence.protect('bulk', 'bulk/{id}');
			select count(*) from fence.claim('bulk', 5, 'W', 30000, 'not done')  -- 5
		A create temp table old as select resource, lease_id, fencing_token, job ->> 'id' as id
			from fence.claim('bulk', 1000, 'cleaner', 30000, 'done')
		A begin; select fence.guard(resource, fencing_token, 1) from old order by resource;
			delete from bulk using old where bulk.id = old.id::bigint and done;
			select fence.release(resource, 'cleaner', lease_id, fencing_token) from old order by resource; commit
		A select count(*), count(*) filter (where done) from bulk  -- 20|0
		A select count(*) from fence.claim('bulk', 100, 'W', 30000, 'not done')  -- 15`},
	{"the arguments of a claim are checked first, whatever the table holds", `
		A create table nothing (id integer primary key); select fence.protect('nothing', 'nothing/{id}')
		A select count(*) from fence.claim('nothing', 1, 'A')  -- 0
		A select fence.claim('nothing', 1, '')  -- !22023 owner_id
		A select fence.claim('nothing', 1, null)  -- !22023 owner_id
		A select fence.claim('nothing', 1, 'A', 1)  -- !22023 ttl_ms
		A select fence.claim('nothing', 1, 'A', null)  -- !22023 ttl_ms
		A select fence.claim('nothing', 1001, 'A')  -- !22023 jobs_max
		A begin isolation level serializable; select fence.claim('nothing', 1, 'A')  -- !25000
		A rollback; begin read only; select fence.claim('nothing', 1, 'A')  -- !25006
		A rollback; select fence.claim_leases('nothing', array(select 'nothing/' || g from generate_series(1, 1001) g), 'A', 1000,
			'00000000-0000-8300-8000-000000000000')  -- !22023 1001
		A select fence.claim_leases('nothing', '{}', 'A', 1000, '00000000-0000-8300-8000-000000000000')  -- !22023 lock
		A select fence.claim_leases('nothing', '{nothing/1}', 'A', 1000, gen_random_uuid())  -- !22023 lease_id
		A select fence.claim_leases('nothing', '{nothing/1}', 'A', 1000, null)  -- !22023 lease_id
		A select fence.claim_leases('nothing', '{nothing/1}', 'A', 1000, '00000000-0000-8100-8000-000000000000')  -- !22023 lease_id`},
	{"rows of one resource are claimed under one lease, by one worker at a time", `
		A create table keyed (id integer primary key, key text, done boolean not null default false);
			insert into keyed values (1, 'a'), (2, 'b'), (3, 'a'), (4, 'a'); select fence.protect('keyed', 'keyed/{key}')
		A select string_agg(job ->> 'id', ' ' order by n), count(distinct resource), count(distinct fencing_token)
			from fence.claim('keyed', 3, 'A', order_by => 'id')
				with ordinality as c (resource, lease_id, fencing_token, expires_at, job, n)  -- 1 2 3|2|2
		B select count(*) from fence.claim('keyed', 9, 'B')  -- 0
		A select fencing_token from fence.held where lock = 'keyed/a'  -- $t
		A begin; select fence.guard('keyed/a', $t, 1); update keyed set done = true where key = 'a'; commit
		A select count(*) from fence.renew_claim('A', (select lease_id from fence.leases where lock = 'keyed/a'))  -- 2`},
	{"the leases of a claim are renewed together, and those that are lost are not", `
		A create table renewed (id integer primary key); insert into renewed values (1), (2), (3);
			select fence.protect('renewed', 'renewed/{id}')
		A select distinct lease_id from fence.claim('renewed', 3, 'A', 1000)  -- $id
		A select count(*), min(expires_at) > clock_timestamp() + interval '1 minute'
			from fence.renew_claim('A', '$id', 120000)  -- 3|t
		A select count(*) from fence.renew_claim('B', '$id')  -- 0
		A select test.expire('renewed/1'); select lease_id from fence.claim('renewed', 1, 'B')  -- $b
		A select string_agg(resource, ' ') from fence.renew_claim('B', '$b')  -- renewed/1
		A select test.release('renewed/2', fencing_token) from fence.held where lock = 'renewed/2'
		A insert into fence.policies (prefix, max_hold_ms) values ('renewed', 3600000)
		A select string_agg(resource, ' ') from fence.renew_claim('A', '$id')  -- renewed/3
		A select fence.renew_claim('A', null)  -- !22023
		A select fence.renew_claim('A', '$id', 1)  -- !22023
		A select fence.renew_claim('', '$id')  -- !22023`},
	// A claim waits for no lock longer than a millisecond, also not for one of another script's on an index. So B tries again.
	{"a renewal of a claim waits for nobody", `
		A create table kept (id integer primary key); insert into kept values (1), (2), (3); select fence.protect('kept', 'kept/{id}')
		A set lock_timeout = '2s'; select distinct lease_id from fence.claim('kept', 3, 'A')  -- $id
		A select test.expire('kept/1')
		B begin; select resource from generate_series(1, 100) g, fence.claim('kept', 1, left('B' || g, 1)) limit 1  -- kept/1
		C begin; select fence.release('kept/3', 'A', '$id', fencing_token) from fence.leases where lock = 'kept/3'
		A select string_agg(resource, ' ' order by resource) from fence.renew_claim('A', '$id', 60000)  -- kept/2 kept/3
		A begin; select expires_at > now() + interval '40 s' from fence.renew_claim('A', '$id', 60000) order by resource desc  -- t
		D set lock_timeout = '2s'; select count(*) from fence.renew_claim('A', '$id', 60000)  -- 2
		B select count(*) from fence.claim('kept', 9, 'B')  -- 0
		C commit
		B rollback
		A commit; select string_agg(resource, ' ') from fence.renew_claim('A', '$id')  -- kept/2`},
	{"claims with bad arguments, and without rights", `
		A create table plain (id integer primary key); create table whole (id integer primary key);
			select fence.protect('whole', 'whole'); create table good (id integer primary key, name text);
			insert into good values (1, 'a'), (2, repeat('x', 600)); select fence.protect('good', 'good/{name}')
		A select fence.claim('plain', 1, 'A')  -- !22023 is not protected
		A select fence.claim('whole', 1, 'A')  -- !22023 has no column
		A select fence.claim('good', 0, 'A')  -- !22023 jobs_max is '0', it must be 1 to 1000
		A select fence.claim('good', 1001, 'A')  -- !22023
		A select fence.claim('good', null, 'A')  -- !22023
		A select fence.claim('good', 1, '')  -- !22023 owner_id
		A select fence.claim('good', 1, 'A', 1)  -- !22023 ttl_ms
		A select fence.claim('good', 1, 'A', condition => 'nothing')  -- !42703
		A begin isolation level repeatable read; select fence.claim('good', 1, 'A')  -- !25000
		A rollback; set role $app; select fence.claim('good', 1, 'A')  -- !42501
		A reset role; grant select on good to $app; set role $app; select fence.claim('good', 1, 'A')  -- !42501
		A reset role; grant update on good to $app; set role $app; select count(*) from fence.claim('good', 9, 'A')  -- 1
		A reset role; insert into fence.policies (prefix, authority) values ('good', 'external');
			select test.expire('good/a'); select fence.claim('good', 1, 'A')  -- !LF003
		A update fence.policies set authority = 'builtin', leases = 'redis' where prefix = 'good';
			select fence.claim('good', 1, 'A')  -- !LF005
		A update fence.policies set leases = null, require_principal_owner = true where prefix = 'good';
			select fence.claim('good', 1, 'A')  -- !22023 the policy demands an owner_id
		A delete from fence.policies where prefix = 'good'; select count(*) from fence.claim('good', 1, 'A')  -- 1`},
	{"the commit of a claim is durable, and of none as it was", `
		A create table durable (id integer primary key); insert into durable values (1);
			select fence.protect('durable', 'durable/{id}')
		A set synchronous_commit = off; begin; select count(*) from fence.claim('durable', 1, 'A'); show synchronous_commit  -- on
		A commit; begin; select count(*) from fence.claim('durable', 1, 'A'); show synchronous_commit  -- off
		A commit; set synchronous_commit = remote_apply; select test.expire('durable/1'); begin;
			select count(*) from fence.claim('durable', 1, 'A'); show synchronous_commit  -- remote_apply`},
}

// forgetScript sweeps the whole database: a claim beside it would leave out the fences that a sweep has locked.
var forgetScript = script{"claimed names are forgotten when no older token can be admitted", `
		A create table forgotten (id integer primary key); insert into forgotten select generate_series(1, 7);
			select fence.protect('forgotten', 'forgotten/{id}'); select test.grant('forgotten', 'exclusive', 'subtree')  -- $s
		A select test.expire('forgotten'); select count(*) from fence.claim('forgotten', 1, 'A')  -- 1
		A select test.release('forgotten/1', fencing_token) from fence.held where lock = 'forgotten/1'  -- released
		A select test.forget('forgotten')  -- forgotten/1
		A select fence.guard('forgotten/1', $s, 1)  -- !LF103 superseded
		A select test.grant('forgotten', 'exclusive', 'subtree')  -- $s
		A select test.release('forgotten', $s); select count(*) from fence.claim('forgotten', 7, 'A')  -- 7
		A select min(fencing_token) from fence.held where lock = 'forgotten/2'  -- $t
		A select test.write('forgotten/3 ' || fencing_token || ' value') from fence.held where lock = 'forgotten/3'
		A update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = 'forgotten/4';
			select test.sweep(); insert into fence.policies (prefix, authority) values ('forgotten/5', 'external')
		A insert into fence.gateways values ('00000000-0000-0000-0000-000000000002', 'infinity');
			insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at) values
			('forgotten/6', '00000000-0000-0000-0000-000000000002', 'W', 'exclusive', 'node', 1000, now(), 'infinity')
		A select count(test.release(lock, fencing_token)) from fence.held where lock like 'forgotten/%'  -- 6
		A select test.grant('forgotten/7'); select test.forget('forgotten')
			-- forgotten/3 forgotten/4 forgotten/5 forgotten/6 forgotten/7
		A select fence.acquire('forgotten/8', 'A', metadata => '{"table": "public.forgotten"}');
			select table_name is null from fence.held where lock = 'forgotten/8'  -- t
		A select test.release('forgotten/8', granted_token) from fence.fences where resource = 'forgotten/8';
			select test.forget('forgotten/8'); select count(*) from fence.fences where resource = 'forgotten/8'  -- 1
		A select count(*) from fence.leases where lock = 'forgotten/2'  -- 0
		A select fence.guard('forgotten/2', $t, 1)  -- !LF102
		A select fencing_token > $t from fence.claim('forgotten', 1, 'A', condition => 'id = 2')  -- t`}

// TestClaims checks which rows fence.claim takes, for whom, and what it refuses.
func TestClaims(t *testing.T) {
	t.Parallel()
	url, variables := protectedDatabase(t)
	runScripts(t, url, variables, claimScripts)
}

// TestForgottenClaims checks which claimed names the sweep forgets.
func TestForgottenClaims(t *testing.T) {
	t.Parallel()
	if err := forgetScript.run(t.Context(), scripted(t, ""), nil); err != nil {
		t.Error(err)
	}
}

// TestClaimsAtRandom checks that each job is completed once, by workers that freeze until they have lost a job, and
// complete it nevertheless. One of them never freezes.
func TestClaimsAtRandom(t *testing.T) {
	t.Parallel()
	const jobs, workers = 150, 6
	url := scripted(t, fmt.Sprintf(`
		create table jobs (id integer primary key, completions integer not null default 0);
		insert into jobs select g from generate_series(1, %d) g;
		select fence.protect('jobs', 'jobs/{id}')`, jobs))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	group, ctx := errgroup.WithContext(await.Context(t))
	late := make([]int, workers)
	for i := range workers {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			late[i], err = claimUntilDone(ctx, conn, fmt.Sprint("worker-", i), i > 0, rand.New(rand.NewPCG(seed, uint64(i))))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	var once int
	if err := connect(t, url).QueryRow(t.Context(), "select count(*) from jobs where completions = 1").Scan(&once); err != nil {
		t.Fatal(err)
	}
	rejected := 0
	for _, n := range late {
		rejected += n
	}
	t.Logf("%d late completions were rejected", rejected)
	if once != jobs || rejected == 0 {
		t.Errorf("%d of %d jobs were completed once, and %d late completions rejected", once, jobs, rejected)
	}
}

// claimUntilDone claims and completes jobs until none is left, and returns how many completions came too late. A worker
// that freezes continues when another has its first job: at the first claim, and at one in three.
func claimUntilDone(
	ctx context.Context, conn *pgx.Conn, owner string, freezes bool, random *rand.Rand,
) (late int, err error) {
	type claimed struct {
		Resource string
		LeaseID  string
		Token    int64
		ID       int
	}
	for round := 0; ; round++ {
		rows, err := conn.Query(ctx, `
			select resource, lease_id::text, fencing_token, (job ->> 'id')::integer
			from fence.claim('jobs', $1, $2, 100, 'completions = 0')`, 1+random.IntN(8), owner)
		if err != nil {
			return late, err
		}
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
		if err != nil {
			return late, err
		}
		var left bool
		if err := conn.QueryRow(ctx, "select exists (select from jobs where completions = 0)").Scan(&left); err != nil || !left {
			return late, err
		}
		if len(jobs) > 0 && freezes && (round == 0 || random.IntN(3) == 0) {
			const lost = "select not exists (select from fence.leases where lock = $1 and fencing_token = $2 and ended_at is null)"
			for over := false; !over; {
				time.Sleep(time.Millisecond)
				if err := conn.QueryRow(ctx, lost, jobs[0].Resource, jobs[0].Token).Scan(&over); err != nil {
					return late, err
				}
			}
		}
		for _, job := range jobs {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "select fence.guard($1, $2, 1)", job.Resource, job.Token); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, "update jobs set completions = completions + 1 where id = $1", job.ID); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "select fence.release($1, $2, $3, $4)", job.Resource, owner, job.LeaseID, job.Token)
				return err
			})
			var pgErr *pgconn.PgError
			switch {
			case errors.As(err, &pgErr) && pgErr.Code == "LF103":
				late++
			case err != nil:
				return late, err
			}
		}
	}
}
