package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// superseded is a lock that was granted twice, of which the memory of r knows that the first token is shut out.
func superseded(t *testing.T, r refusing, lock store.Name) *refusalTeller {
	t.Helper()
	teller := &refusalTeller{refusing: r, lock: lock}
	teller.expect(t, "acquire", "1=v: admitted", "acquire", "1=v: token_stale superseded", "1=v: early token_stale superseded")
	return teller
}

func (r *refusalTeller) expect(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := r.play(patient(t), line); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
}

// TestPoliciesOfOthers sets and deletes policies through one Service: the other forgets at once, and so what was refused and is
// admissible by the new policy is admitted.
func TestPoliciesOfOthers(t *testing.T) {
	b := newTestbed(t)
	r, other := newRefusing(t, b, engine.Config{}), newRefusing(t, b, engine.Config{})
	external := store.Policy{Rule: store.RuleStrict, Authority: store.AuthorityExternal}
	changes := map[string]func(ctx context.Context, lock store.Name) error{
		"put": func(ctx context.Context, lock store.Name) error {
			policy := external
			policy.Prefix = string(lock)
			return other.PutPolicy(ctx, policy)
		},
		"delete": func(ctx context.Context, lock store.Name) error { return other.DeletePolicy(ctx, string(lock)) },
		"put by a Store": func(ctx context.Context, lock store.Name) error {
			policy := external
			policy.Prefix = string(lock)
			return b.PutPolicy(ctx, policy)
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			lock := store.Name(name)
			if name == "delete" {
				lock = "tree/lock"
				before := r.Refusals().Forgotten()
				for prefix, authority := range map[string]store.Authority{"tree": store.AuthorityExternal, string(lock): store.AuthorityBuiltin} {
					if err := b.PutPolicy(patient(t), store.Policy{Prefix: prefix, Rule: store.RuleStrict, Authority: authority}); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.heard(patient(t), before+2); err != nil {
					t.Fatal(err)
				}
			}
			teller := superseded(t, r, lock)
			before := r.Refusals().Forgotten()
			if err := change(patient(t), lock); err != nil {
				t.Fatal(err)
			}
			await(t, "the change is heard of", func() bool { return r.Refusals().Forgotten() > before && r.RefusalsRemembered() == 0 })
			teller.expect(t, "1.1=v: admitted")
		})
	}
}

// TestPolicyOfOurOwn needs no notification to be in force when the change is answered.
func TestPolicyOfOurOwn(t *testing.T) {
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	set := func(prefix string, authority store.Authority) func() error {
		return func() error {
			return r.PutPolicy(patient(t), store.Policy{Prefix: prefix, Rule: store.RuleStrict, Authority: authority})
		}
	}
	admits := func(lock store.Name, change func() error) {
		t.Helper()
		teller := superseded(t, r, lock)
		err := r.change(patient(t), func() error {
			err := change()
			teller.expect(t, "1.1=v: admitted")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 10 {
		above := fmt.Sprintf("tree-%d", n)
		lock := store.Name(above + "/lock")
		admits(lock, set(string(lock), store.AuthorityExternal))

		lock = store.Name(above + "/other")
		for prefix, authority := range map[string]store.Authority{above: store.AuthorityExternal, string(lock): store.AuthorityBuiltin} {
			if err := r.change(patient(t), set(prefix, authority)); err != nil {
				t.Fatal(err)
			}
		}
		admits(lock, func() error { return r.DeletePolicy(patient(t), string(lock)) })
	}
}

// TestUnheard cuts the listening connection: the memory is not used, and forgotten before it is used again.
func TestUnheard(t *testing.T) {
	b := newTestbed(t)
	c := newCutter(t, b)
	r := refusing{runService(t, c.Through(t), engine.Config{}), b.Store}
	teller := superseded(t, r, "lock")

	c.Cut(beforeServer, `listen "fence_policies"`)
	b.exec(t, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'fencegate listener'")
	await(t, "the connection is lost", func() bool { return !r.Listening() && r.RefusalsRemembered() == 0 })
	teller.expect(t, "1=v: token_stale superseded", "1=v: token_stale superseded")
	if n := r.RefusalsRemembered(); n != 0 {
		t.Errorf("%d refusals were learned while no change of policies could be heard", n)
	}

	before := r.Refusals().Forgotten()
	c.Cut(never, "")
	await(t, "there is another connection", func() bool { return r.Listening() && r.Refusals().Forgotten() > before })
	teller.expect(t, "1=v: token_stale superseded", "1=v: early token_stale superseded")
}

// TestNotRunning does not remember: nobody would tell of a change.
func TestNotRunning(t *testing.T) {
	b := newTestbed(t)
	service, err := engine.New(b.Store, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	teller := &refusalTeller{refusing: refusing{&runningService{Engine: service}, b.Store}, lock: "lock"}
	teller.expect(t, "acquire", "acquire", "1=v: token_stale superseded", "1=v: token_stale superseded")

	running := runService(t, b.Store, engine.Config{})
	teller.refusing = refusing{running, b.Store}
	teller.expect(t, "1=v: token_stale superseded", "1=v: early token_stale superseded")
	write, err := teller.write("1=v")
	if err != nil || !running.Refusals().Refuses(write) {
		t.Fatal("it would not be refused", err)
	}
	running.Stop()
	if running.Refusals().Refuses(write) {
		t.Error("a Service that has ended refuses from memory")
	}
}

// TestRefusalsOff asks the database each time.
func TestRefusalsOff(t *testing.T) {
	b := newTestbed(t)
	teller := &refusalTeller{refusing: newRefusing(t, b, engine.Config{RefusalsRememberedMax: -1}), lock: "lock"}
	teller.expect(t, "acquire", "acquire", "1=v: token_stale superseded", "1=v: token_stale superseded", "external", "1=v: admitted")
}

// TestSubmittedEarly refuses a queued write by the same memory, and from another goroutine.
func TestSubmittedEarly(t *testing.T) {
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	teller := &refusalTeller{refusing: r, lock: "lock"}
	teller.expect(t, "acquire", "acquire")
	write, err := teller.write("1=v")
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(3) {
		told := make(chan string) // without room: done in this goroutine would never end
		r.Submit(patient(t), write, func(result store.Result, err error) { told <- fmt.Sprint(briefly(result), " ", err) })
		if got := <-told; got != "token_stale superseded <nil>" {
			t.Errorf("it was told %s", got)
		}
		if early := r.RefusedEarly(); early != n {
			t.Errorf("%d of %d writes were refused early", early, n+1)
		}
	}
}

// TestMalformedAndStale tells first what is malformed, as the database's source does.
func TestMalformedAndStale(t *testing.T) {
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	teller := superseded(t, r, "lock")
	write, err := teller.write("1=v")
	if err != nil {
		t.Fatal(err)
	}
	early := r.RefusedEarly()
	write.ContentType = "no type"
	_, err = r.Commit(patient(t), write)
	_, direct := b.Write(patient(t), []store.Write{write})
	if err == nil || direct == nil || err.Error() != direct.Error() {
		t.Errorf("it is told %v, and by the database's source %v", err, direct)
	}
	if r.RefusedEarly() != early {
		t.Error("what is malformed counts as an early refusal")
	}
}

// TestRestoredInPlace restores a dump beneath a running Service, whose connections survive that: what it remembers is of a database that is no
// more, and it forgets that. A writer that is valid by the restored one is admitted.
func TestRestoredInPlace(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	newOthers(t, r.Engine).expectServed(t)
	teller := superseded(t, r, "lock")
	before := r.Refusals().Forgotten()
	// The state before the second grant comes back, in a schema of the same name.
	b.exec(t, "drop schema fence cascade")
	if err := b.Migrate(patient(t)); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "insert into fence.fences (resource, granted_token, open) values ('lock', $1, true)", teller.leases[0].Token)
	await(t, "the Service notices", func() bool { return r.Refusals().Forgotten() > before })
	teller.expect(t, "1.1=v: admitted")
	newOthers(t, r.Engine).expectServed(t) // whatever the connections had prepared
}
