package migrations_test

import "testing"

// scenarios are of grants, writes and ends that come at the same time. Each runs in a database of its own.
var scenarios = []script{
	{"a worker pauses for too long, another one takes over, and a late write arrives before any of the new holder", `
		A select test.acquire('x', 'A')  -- $a
		A select test.write('x $a.1 one')  -- admitted 1 created
		B select test.expire('x'); select test.acquire('x', 'B')  -- $b
		A select test.write('x $a.2 two')  -- token_stale superseded $b $a.1
		A select test.renew('x', $a)  -- superseded
		A select test.release('x', $a)  -- superseded
		B select test.write('x $b.1 by-B')  -- admitted 2
		A select test.write('x $a.3 three')  -- token_stale superseded $b $b.1
		A select test.record('x')  -- by-B 2 $b.1
		A select test.fence('x')  -- open $b $b.1`},
	{"an operator breaks a lock while a write of its holder is under way: that stays, and was the last one", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 one')  -- admitted 1 created
		B select outcome, (lease).fencing_token from fence.break('x', 'ordered')  -- waits for A
		A commit
		B ...  -- broken|$a
		A select test.write('x $a.2 two')  -- token_stale released $a $a.1
		A select test.renew('x', $a)  -- broken
		A select test.release('x', $a)  -- broken
		B select outcome from fence.break('x', 'ordered')  -- free
		B select test.acquire('x', 'B')  -- $b
		A select test.record('x')  -- one 1 $a.1
		A select test.leases('x')  -- A $a broken, B $b live`},
	{"a lease runs out in a transaction of its holder, which may write on", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 one')  -- admitted 1 created
		B select test.expire('x')
		A select test.write('x $a.2 two')  -- admitted 2
		A commit; select test.record('x')  -- two 2 $a.2
		A select test.fence('x')  -- open $a $a.2`},
	{"a policy demands a live lease, by the clock after the wait for the fence", `
		A select test.policy('x', p_live => true); select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 one')  -- admitted 1 created
		B select test.expire('x')
		A select test.write('x $a.2 two')  -- lease_expired $a $a.1
		A commit; select test.record('x')  -- one 1 $a.1
		A select test.fence('x')  -- open $a $a.1
		A select test.release('x', $a)  -- released
		A select test.acquire('x', 'A')  -- $b
		A begin; select test.write('x $b.1 three')  -- admitted 2
		B select test.write('x $b.2 four')  -- waits for A
		C select test.expire('x')
		A commit
		B ...  -- lease_expired $b $b.1
		A select test.record('x')  -- three 2 $b.1`},
	// D guesses the token of the first grant on y. A write that would be admitted under a fence that the set has not locked
	// has the whole set begun anew.
	{"a set of writes waits for one fence, and another one is made meanwhile", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 by-A')  -- admitted 1 created
		D select test.write('x $a.2 by-D if -1', format('y %s.1 by-D', $a + 1))  -- waits for A
		B select test.acquire('y', 'B')  -- $b
		B select $b - $a  -- 1
		B select test.expire('y')
		C begin; select test.acquire('y', 'C')  -- $c
		A commit
		D ...  -- !40001 a fence was granted while the write waited
		D select test.write('x $a.2 by-D if -1', 'y $b.1 by-D')  -- waits for C
		C commit
		D ...  -- admitted 2, token_stale superseded $c 0.0
		A select test.record('y')  -- none
		A select test.fence('y')  -- open $c 0.0`},
	{"a set of writes waits for one fence, and another service's token makes another one meanwhile", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.3 by-A')  -- admitted 1 created
		D select test.write('x $a.4 by-D if -1', 'y 7 by-7')  -- waits for A
		B select test.policy('y', 'external'); select test.write('y 5 by-5')  -- admitted 1 created
		C begin; select test.write('y 9 by-9')  -- admitted 2
		A commit
		D ...  -- !40001 a fence was granted while the write waited
		D select test.write('x $a.4 by-D if -1', 'y 7 by-7')  -- waits for C
		C commit
		D ...  -- admitted 2, token_stale superseded 0 9.0
		A select test.record('y')  -- by-9 2 9
		A select test.fence('y')  -- closed 0 9.0
		D select test.write('y 7 by-7')  -- token_stale superseded 0 9.0`},
	{"of another service's tokens only the order is judged", `
		A select test.policy('x', 'external'); select test.acquire('x/a', 'A')  -- !LF003
		A select test.write('x/a 7001 one')  -- admitted 1 created
		A select test.write('x/a 7000 two')  -- token_stale superseded 0 7001.0
		A select test.write('x/a 7001 two')  -- token_stale reused 0 7001.0
		A select test.write('x/a 7001.1 two')  -- admitted 2
		A begin; select test.write('x/new 1 by-1')  -- admitted 1 created
		B select test.write('x/new 2 by-2')  -- waits for A
		A commit
		B ...  -- admitted 2
		C select test.write('x/new 1 by-1')  -- token_stale superseded 0 2.0
		A select test.record('x/new')  -- by-2 2 2
		A select test.fence('x/new')  -- closed 0 2.0`},
	{"a write with the old token waits for a grant that is under way, and is shut out", `
		A select test.acquire('x', 'A')  -- $a
		B select test.expire('x'); begin; select test.acquire('x', 'B')  -- $b
		A select test.write('x $a.1 by-A')  -- waits for B
		B commit
		A ...  -- token_stale superseded $b 0.0
		A select test.record('x')  -- none
		A select test.fence('x')  -- open $b 0.0`},
	{"a write with the old token waits for a grant that is undone, and is admitted", `
		A select test.acquire('x', 'A')  -- $a
		B select test.expire('x'); begin; select test.acquire('x', 'B')  -- $b
		A select test.write('x $a.1 by-A')  -- waits for B
		B rollback
		A ...  -- admitted 1 created
		A select test.record('x')  -- by-A 1 $a.1
		B select test.acquire('x', 'B')::bigint > $b  -- t`},
	{"a grant waits for a write that is undone, and nothing of the write is left", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 by-A')  -- admitted 1 created
		B select test.expire('x'); select test.acquire('x', 'B')  -- waits for A
		A rollback
		B ...  -- $b
		A select test.record('x')  -- none
		A select test.fence('x')  -- open $b 0.0
		A select test.write('x $a.1 by-A')  -- token_stale superseded $b 0.0`},
	{"an acquire that is sent again with its request_id has the same lease, as long as it runs", `
		A select test.acquire('x', 'A', p_request => 'r1')  -- $a
		A select test.acquire('x', 'A', p_request => 'r1') = '$a'  -- t
		A select test.acquire('x', 'A')  -- held by A
		B select test.acquire('x', 'B', p_request => 'r1')  -- request_id_reused
		C begin; select test.acquire('y', 'C', p_request => 'r2')  -- $c
		D select test.acquire('y', 'C', p_request => 'r2') = '$c'  -- waits for C
		C commit
		D ...  -- t
		A select test.leases('y')  -- C $c live
		D select test.expire('y'); select test.acquire('y', 'C', p_request => 'r2')  -- lost expired
		B select test.acquire('y', 'B')
		C select test.renew('y', $c)  -- superseded`},
	{"a policy limits how long a lock is held, from the next renewal on, which waits for no writer", `
		A select test.acquire('x', 'A')  -- $a
		A select test.policy('x', p_hold_ms => 3600000)
		A begin; select test.write('x $a.1 one')  -- admitted 1 created
		B select test.renew('x', $a)  -- live
		A commit
		E update fence.leases set granted_at = granted_at - interval '1 hour'
		A select test.renew('x', $a)  -- expired
		A select test.write('x $a.2 late')  -- admitted 2
		B select test.acquire('x', 'B')  -- $b
		A select test.renew('x', $a)  -- superseded
		A select test.leases('x')  -- A $a expired, B $b live
		A select test.write('x $a.3 three')  -- token_stale superseded $b $a.2`},
	{"a late writer is shut out by readers, who may not write either", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 by-A')  -- admitted 1 created
		B select test.expire('x'); select test.acquire('x', 'B', p_mode => 'shared')  -- waits for A
		A commit
		B ...  -- $b
		C select test.acquire('x', 'C', p_mode => 'shared')  -- $c
		A select test.write('x $a.2 late')  -- token_stale superseded $c $a.1
		B select test.write('x $b.1 by-B')  -- token_stale superseded $c $a.1
		A select test.write('x $a.1 by-A')  -- admitted 1 replayed
		A select test.acquire('x', 'A')  -- held by C
		B select test.release('x', $b)  -- released
		A select test.acquire('x', 'A')  -- held by C
		C select test.release('x', $c)  -- released
		A select test.acquire('x', 'A')::bigint > $c  -- t`},
	{"a release waits for a write that is under way, and closes the fence behind it", `
		A select test.acquire('x', 'A')  -- $a
		C begin; select test.write('x $a.1 one')  -- admitted 1 created
		A select test.release('x', $a)  -- waits for C
		C commit
		A ...  -- released
		C select test.write('x $a.2 two')  -- token_stale released $a $a.1
		A select test.record('x')  -- one 1 $a.1
		A select test.leases('x')  -- A $a released`},
	{"a write waits for a release that is under way, and finds the fence closed", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.release('x', $a)  -- released
		C select test.write('x $a.1 late')  -- waits for A
		A commit
		C ...  -- token_stale released $a 0.0
		A select test.record('x')  -- none`},
	{"a lease that has run out is not renewed, whether a sweep ends it first or is undone", `
		A select test.acquire('x', 'A')  -- $a
		E select test.expire('x'); begin; select test.sweep()  -- 1
		A select test.renew('x', $a)  -- waits for E
		E commit
		A ...  -- expired
		A select test.leases('x')  -- A $a expired
		B select test.acquire('x', 'B')  -- $b
		E select test.expire('x'); begin; select test.sweep()  -- 1
		B select test.renew('x', $b)  -- waits for E
		E rollback
		B ...  -- expired
		A select test.leases('x')  -- A $a expired, B $b over`},
	{"a sweep leaves alone what somebody has in hand", `
		A select test.acquire('x', 'A')  -- $a
		A select test.expire('x'); begin; select test.release('x', $a)  -- released
		E select test.sweep()  -- 0
		A commit; select test.leases('x')  -- A $a released`},
	// The locks of an ended session are free at once; the fences close behind it one after the other.
	{"a session ends while one of its leases writes, and another is granted", `
		A select test.session('A')  -- $s
		A select test.acquire('jobs', 'A', 'subtree', p_session => '$s')  -- $a
		C begin; select test.write('jobs/1 $a.1 by-A')  -- admitted 1 created
		D begin; select test.acquire('more', 'D', p_session => '$s')  -- $d
		A select fence.end_session('$s')  -- waits for D
		D commit
		A ...  -- released
		B select test.acquire('jobs/1', 'B')  -- waits for C
		C commit
		B ...  -- $b
		A select fence.settle_leases('$s', '', 10, 60000); select test.leases('jobs')  -- A $a released
		A select test.leases('more')  -- D $d released
		A select test.fence('more')  -- closed $d 0.0
		C select test.write('jobs/1 $a.2 late', 'jobs/2 $a.1 late')
			-- token_stale superseded $b $a.1, token_stale released $a 0.0
		B select test.write('jobs/1 $b.1 by-B')  -- admitted 2
		A select test.acquire('jobs/3', 'A', p_session => '$s')  -- session_lost released`},
	// Both wait for the first fence in the order of names. If B began at y, each could have locked what the other needs.
	{"two sets name the same fences in opposite order, and neither waits for the other in a circle", `
		C select test.acquire('x', 'C')  -- $x
		C select test.acquire('y', 'C')  -- $y
		C begin; select test.write('x $x.1 by-C', 'y $y.1 by-C')  -- admitted 1 created, admitted 1 created
		A select test.write('x $x.2 by-A if -1', 'y $y.2 by-A if -1')  -- waits for C
		B select test.write('y $y.3 by-B if -1', 'x $x.3 by-B if -1')  -- waits for A
		C commit
		A ...  -- admitted 2, admitted 2
		B ...  -- admitted 3, admitted 3
		A select test.record('x')  -- by-B 3 $x.3
		A select test.record('y')  -- by-B 3 $y.3`},
	{"a subtree and a name in it are asked for at once: neighbours wait, and what is outside does not", `
		A begin; select test.acquire('x/1', 'A')  -- $a
		B select test.acquire('x', 'B', 'subtree')  -- waits for A
		A commit
		B ...  -- held by A
		A select test.release('x/1', $a)  -- released
		B begin; select test.acquire('x', 'B', 'subtree')  -- $b
		A select test.acquire('x/2', 'A', p_mode => 'shared')  -- waits for B
		C select test.acquire('x-3', 'C')  -- $c
		B rollback
		A ...  -- $a2
		A select test.leases('x/2')  -- A $a2 live`},
	{"two ask at once for a name that was never used", `
		A begin; select test.acquire('x', 'A')  -- $a
		B select test.acquire('x', 'B')  -- waits for A
		C select test.acquire('x', 'C')  -- waits for A
		A commit
		B ...  -- held by A
		C ...  -- held by A
		A select test.leases('x')  -- A $a live
		A begin; select test.acquire('y', 'A')
		B select test.acquire('y', 'B')  -- waits for A
		A rollback
		B ...  -- $b
		A select test.leases('y')  -- B $b live
		A select test.fence('y')  -- open $b 0.0`},
	{"two transactions over the same fences come one after the other, whole", `
		A select test.acquire('x', 'A')  -- $x
		A select test.acquire('y', 'A')  -- $y
		A begin; select test.transact('x $x.1 90', 'y $y.1 110')  -- admitted {1,1}
		B select test.transact('y $y.2 120', 'x $x.2 80')  -- waits for A
		A commit
		B ...  -- admitted {2,2}
		A select test.transact('x $x.3 0', 'y $y.2 200')  -- 2: token_stale reused $y $y.2
		A select test.transact('x $x.3 0 if 1', 'y $y.3 200')  -- 1: version_mismatch 2
		B select test.transact('y $y.2 120', 'x $x.2 80')  -- admitted {2,2} replayed
		A select test.record('x')  -- 80 2 $x.2
		A select test.record('y')  -- 120 2 $y.2
		A select test.fence('x')  -- open $x $x.2
		A select test.fence('y')  -- open $y $y.2`},
	{"tokens jump when the database is another one, once for each failover", `
		A select test.acquire('x', 'A')  -- $a
		A select test.acquire('y', 'A')  -- $y
		A update fence.database_identity
			set system_identifier = system_identifier - 1, started_at = started_at - interval '1 hour'
		B select test.expire('x'); select test.acquire('x', 'B')  -- $b
		B select $b >= $y + (1::bigint << 32)  -- t
		A select test.write('x $a.1 by-A')  -- token_stale superseded $b 0.0
		B select test.write('x $b.1 by-B')  -- admitted 1 created
		B select test.fence('x')  -- open $b $b.1
		B select test.acquire('z', 'B') = ($b + 1)::text  -- t
		A select test.write('y $y.1 by-A')  -- admitted 1 created
		A update fence.database_identity
			set system_identifier = system_identifier - 1, started_at = started_at - interval '1 hour'
		C begin; select test.acquire('later/1', 'C')  -- $c
		D select test.acquire('later/2', 'D')  -- $d
		C commit; select $c >= $b + (1::bigint << 32), $d >= $b + (1::bigint << 32)  -- t|t
		A select test.leases('later/1')  -- C $c live
		A select test.leases('later/2')  -- D $d live`},
}

// onCopies are scripts of copies by logical replication, in each of which another call comes first. All numbers that the
// calls draw are new there.
func onCopies() (scripts []script) {
	for _, first := range []string{
		"select fence.protect('copied', 'copied/{id}', 'enforce')",
		"select fence.unprotect('copied')",
		"create table more (id integer); select fence.protect('more', 'more/{id}')",
		"select test.policy('p')",
		"select fence.try_guard('x', 1)",
		"insert into copied values (3)",
		"select outcome from fence.break('x', 'ordered')",
		"select test.acquire('z', 'C')",
		"select fence.begin_watch(array['x'], 60000); select test.release('x', $a)",
		"select fence.accept_database()",
		"select count(*) from fence.sweep_all()",
	} {
		scripts = append(scripts, script{"a copy by logical replication, and first " + first, `
			A create table copied (id integer); select fence.protect('copied', 'copied/{id}', 'observe');
				select test.acquire('x', 'A')  -- $a
			A select fence.begin_watch(array['x', 'y'], 60000), test.acquire('y', 'B'); select fence.try_guard('x', 1);
				insert into copied values (1), (2)
			A select fence.publish_events(array['y'], 10); select max(since) > 0 from fence.watched  -- t
			A select test.copy(); select count(*) > 2 from fence.sequences_behind()  -- t
			A ` + first + `
			A select test.acquire('late', 'C')::bigint > $a + (1::bigint << 32), fence.note_jump()  -- t|
			A select fence.publish_events(array['x', 'y'], 10); select count(*) from fence.sweep_all();
				select count(*) from fence.sequences_behind()  -- 0`})
	}
	return scripts
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range append(onCopies(), scenarios...) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if err := s.run(t.Context(), scripted(t, ""), nil); err != nil {
				t.Error(err)
			}
		})
	}
}
