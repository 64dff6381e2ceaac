package migrations_test

import "testing"

// scenarios are of grants, writes and ends that come at the same time. Each runs in a database of its own.
var scenarios = []script{
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
			A select test.copy(); select count(*) > 2 from fence.sequences_behind()  -- t
			A ` + first + `
			A select test.acquire('late', 'C')::bigint > $a + (1::bigint << 32), fence.note_jump()  -- t|
			A select count(*) from fence.sweep_all();
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
