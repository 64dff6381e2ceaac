package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// refusing is a running Service that shows which of its answers came from its memory.
type refusing struct {
	*runningService
	direct *postgres.Store // to ask the database
}

func newRefusing(t *testing.T, b *testbed, config engine.Config) refusing {
	t.Helper()
	return refusing{runService(t, openStore(t, postgres.Config{DatabaseURL: b.URL, ConnectionsMax: 8}), config), b.Store}
}

// commit returns the verdict on a write, after "early" if it did not come from the database. An early verdict must be
// the database's own.
func (r refusing) commit(ctx context.Context, write store.Write) (string, error) {
	before := r.RefusedEarly()
	result, err := r.Commit(ctx, write)
	if err != nil {
		return "", err
	}
	answer := verdictOf(spec.AnswerOfResult(result))
	if r.RefusedEarly() == before {
		return answer, nil
	}
	judged, err := r.direct.Write(ctx, []store.Write{write})
	if err != nil {
		return "", err
	}
	if want := verdictOf(spec.AnswerOfResult(judged[0])); answer != want {
		return "", fmt.Errorf("%v was refused early as %q, and the database says %q", write.WriteToken, answer, want)
	}
	var rejected *store.RejectedError
	if !errors.As(result.Err, &rejected) || rejected.Resource != write.Resource || rejected.Key != write.Key ||
		rejected.Token != write.Token || rejected.Sequence != write.Sequence ||
		rejected.GrantedToken+rejected.LastToken == 0 {
		return "", fmt.Errorf("the early refusal of %v is wrong: %w", write.WriteToken, result.Err)
	}
	return "early " + answer, nil
}

// refusalScripts have a call to the lock in each line, or a write and its verdict. A write is the number of the grant
// whose token it has (+1: one that was never granted), its sequence, and its value: "1.2=v".
var refusalScripts = []struct {
	name  string
	lines []string
}{
	{"where nothing was accepted, a number is learned with the second verdict",
		[]string{"acquire", "acquire", "1.1=v: token_stale superseded",
			"1=v: early token_stale superseded", "1.1=v: token_stale superseded", "1.1=v: early token_stale superseded",
			"1.2=v: early token_stale superseded"}},
	{"the retry of the last accepted write", []string{"acquire", "1.5=v: admitted", "acquire",
		"1.6=v: token_stale superseded",
		"1.5=v: admitted replayed", "1.4=v: early token_stale superseded", "1.5=other: token_stale superseded",
		"1.5=v: admitted replayed",
		"2.1=v: admitted", "1.5=v: token_stale superseded", "1.5=v: early token_stale superseded"}},
	{"what is not superseded is asked for", []string{"acquire", "acquire", "2.1=v: admitted",
		"1=v: token_stale superseded",
		"0=v: token_required", "0=v: token_required", "2+1=v: token_unknown", "2+1=v: token_unknown",
		"2.1=other: token_stale reused", "2.1=other: token_stale reused", "2.1=v: admitted replayed"}},
	{"what is released may yet be superseded", []string{"acquire", "1.1=v: admitted", "release",
		"1.2=v: token_stale released",
		"1.2=v: token_stale released", "acquire", "1.2=v: token_stale superseded", "1.2=v: early token_stale superseded"}},
	{"a subtree lease above", []string{"acquire", "1.1=v: admitted", "release", "acquire above",
		"1.2=v: token_stale superseded",
		"1.2=v: early token_stale superseded", "2.1=v: admitted", "release above", "acquire", "2.2=v: token_stale superseded",
		"2.2=v: early token_stale superseded", "2.1=v: admitted replayed", "3.1=v: admitted"}},
	{"tokens of another lock service", []string{"acquire", "acquire", "acquire", "1=v: token_stale superseded",
		"2=v: early token_stale superseded",
		"external", "1=v: admitted", "2=v: admitted", "1=v: token_stale superseded", "1=v: early token_stale superseded",
		"2.1=v: admitted", "builtin", "2=v: token_stale superseded", "3=v: admitted"}},
}

// TestEarlyRefusals checks which writes are refused without the database.
func TestEarlyRefusals(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	for i, c := range refusalScripts {
		t.Run(c.name, func(t *testing.T) {
			script := &refusalScript{refusing: r, lock: store.Name(fmt.Sprintf("tree-%d/lock", i))}
			for n, line := range c.lines {
				if err := script.run(patient(t), line); err != nil {
					t.Fatalf("line %d, %q: %v", n+1, line, err)
				}
			}
		})
	}
}

// refusalScript runs lines on one lock.
type refusalScript struct {
	refusing

	lock   store.Name
	leases []store.Lease
}

func (r *refusalScript) run(ctx context.Context, line string) error {
	action, rest, _ := strings.Cut(line, " ")
	switch action {
	case "acquire":
		return r.acquire(ctx, rest)
	case "release":
		return r.Release(ctx, r.leases[len(r.leases)-1].Ref())
	case "external", "builtin":
		policy := policyOf(r.lock, store.Authority(action))
		return r.change(ctx, func() error { return r.PutPolicy(ctx, policy) })
	}
	text, want, _ := strings.Cut(line, ": ")
	write, err := r.write(text)
	if err != nil {
		return err
	}
	got, err := r.commit(ctx, write)
	if err == nil && got != want {
		err = fmt.Errorf("the verdict is %q", got)
	}
	return err
}

// change changes a policy through the Service, which forgets at once, and again when it is notified: that would disturb
// what comes next.
func (r refusing) change(ctx context.Context, change func() error) error {
	before := r.Refusals().Forgotten()
	if err := change(); err != nil {
		return err
	}
	return r.awaitForgotten(ctx, before+2)
}

// awaitForgotten waits until the Service has forgotten its refusals so many times.
func (r refusing) awaitForgotten(ctx context.Context, times uint64) error {
	for r.Refusals().Forgotten() < times {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the refusals were forgotten %d times, want %d: %w", r.Refusals().Forgotten(), times, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// acquire breaks the lock and acquires it.
func (r *refusalScript) acquire(ctx context.Context, how string) error {
	request := store.AcquireRequest{Lock: r.lock, OwnerID: "A"}
	if how == "above" {
		request.Scope = store.Subtree
		above, _, _ := strings.Cut(string(r.lock), "/")
		request.Lock = store.Name(above)
	}
	if _, err := r.Break(ctx, request.Lock, "the next one's turn"); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	lease, err := r.Acquire(ctx, request)
	r.leases = append(r.leases, lease)
	return err
}

// write reads "1.2=v": the first token that was granted, sequence 2, value v; where none was granted, 1000 and the
// number.
func (r *refusalScript) write(text string) (store.Write, error) {
	token, value, _ := strings.Cut(text, "=")
	var grant, beyond, sequence int64
	write := putOf(r.lock, value)
	if n, _ := fmt.Sscanf(token, "%d+%d", &grant, &beyond); n == 0 {
		return write, fmt.Errorf("%q is no write", text)
	}
	if n, _ := fmt.Sscanf(token, "%d.%d", &grant, &sequence); n == 2 {
		write.Sequence = &sequence
	}
	switch {
	case grant > int64(len(r.leases)):
		write.Token = 1000 + grant + beyond
	case grant > 0:
		write.Token = r.leases[grant-1].Token + beyond
	}
	return write, nil
}

// superseded is a lock that was granted twice, and whose first token the memory of r refuses.
func superseded(t *testing.T, r refusing, lock store.Name) *refusalScript {
	t.Helper()
	script := &refusalScript{refusing: r, lock: lock}
	script.expect(t, "acquire", "1=v: admitted", "acquire", "1=v: token_stale superseded",
		"1=v: early token_stale superseded")
	return script
}

func (r *refusalScript) expect(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := r.run(patient(t), line); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
}

func (r *refusalScript) writeOf(t *testing.T, text string) store.Write {
	t.Helper()
	write, err := r.write(text)
	if err != nil {
		t.Fatal(err)
	}
	return write
}

func policyOf(prefix store.Name, authority store.Authority) store.Policy {
	return store.Policy{Prefix: string(prefix), Rule: store.RuleStrict, Authority: authority}
}

// TestRefusalsForgetAtAnothersPolicy checks that a Service forgets its refusals when another one sets or deletes a
// policy, so that writes that the new policy admits are admitted.
func TestRefusalsForgetAtAnothersPolicy(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r, other := newRefusing(t, b, engine.Config{}), newRefusing(t, b, engine.Config{})
	before := r.Refusals().Forgotten()
	putErr := b.PutPolicy(t.Context(), policyOf("tree", store.AuthorityExternal))
	if err := errors.Join(putErr, b.PutPolicy(t.Context(), policyOf("tree/lock", store.AuthorityBuiltin))); err != nil {
		t.Fatal(err)
	}
	if err := r.awaitForgotten(patient(t), before+2); err != nil {
		t.Fatal(err)
	}
	for lock, change := range map[store.Name]func() error{
		"put": func() error { return other.PutPolicy(patient(t), policyOf("put", store.AuthorityExternal)) },
		"put by a Store": func() error {
			return b.PutPolicy(patient(t),
				policyOf("put by a Store", store.AuthorityExternal))
		},
		"tree/lock": func() error { return other.DeletePolicy(patient(t), "tree/lock") },
	} {
		t.Run(string(lock), func(t *testing.T) {
			script := superseded(t, r, lock)
			before := r.Refusals().Forgotten()
			if err := change(); err != nil {
				t.Fatal(err)
			}
			await(t, "the Service forgets its refusals after the change of policies",
				func() bool { return r.Refusals().Forgotten() > before && r.RefusalsRemembered() == 0 })
			script.expect(t, "1.1=v: admitted")
		})
	}
}

// TestRefusalsForgetAtTheirOwnPolicy checks that a change of policies through the Service itself is in force when it is
// answered, without a notification.
func TestRefusalsForgetAtTheirOwnPolicy(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	if err := r.change(patient(t), func() error { return r.PutPolicy(patient(t), policyOf("", store.AuthorityExternal)) }); err != nil {
		t.Fatal(err)
	}
	put := func() error { return r.PutPolicy(patient(t), policyOf("lock", store.AuthorityBuiltin)) }
	for range 10 {
		if err := r.change(patient(t), put); err != nil {
			t.Fatal(err)
		}
		script := &refusalScript{refusing: r, lock: "lock"}
		script.expect(t, "acquire", "acquire", "1=v: token_stale superseded", "1=v: early token_stale superseded")
		err := r.change(patient(t), func() error {
			err := r.DeletePolicy(patient(t), "lock")
			script.expect(t, "1=v: admitted")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefusalsWithoutNotifications checks that the refusals are not used while the listening connection is lost, and
// are forgotten before they are used again.
func TestRefusalsWithoutNotifications(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	c := newCutter(t, b)
	r := refusing{runService(t, c.Through(t), engine.Config{}), b.Store}
	script := superseded(t, r, "lock")

	c.Cut(beforeServer, `listen "fence_policies"`)
	b.Exec(t, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and "+
		"application_name = 'fencegate listener'")
	await(t, "the listening connection is lost", func() bool { return !r.Listening() && r.RefusalsRemembered() == 0 })
	script.expect(t, "1=v: token_stale superseded", "1=v: token_stale superseded")
	if n := r.RefusalsRemembered(); n != 0 {
		t.Errorf("%d refusals were learned without notifications, want none", n)
	}

	before := r.Refusals().Forgotten()
	c.Cut(never, "")
	await(t, "there is another listening connection",
		func() bool { return r.Listening() && r.Refusals().Forgotten() > before })
	script.expect(t, "1=v: token_stale superseded", "1=v: early token_stale superseded")
}

// TestRefusalsOfAStoppedService checks that a Service that does not run neither learns refusals nor uses them.
func TestRefusalsOfAStoppedService(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	service := enginetest.Serve(t, b.Store, engine.Config{})
	script := &refusalScript{refusing: refusing{&runningService{Served: service}, b.Store}, lock: "lock"}
	script.expect(t, "acquire", "acquire", "1=v: token_stale superseded", "1=v: token_stale superseded")

	running := runService(t, b.Store, engine.Config{})
	script.refusing = refusing{running, b.Store}
	script.expect(t, "1=v: token_stale superseded", "1=v: early token_stale superseded")
	write := script.writeOf(t, "1=v")
	if !running.Refusals().Refuses(write) {
		t.Fatal("a write that was refused would not be refused early")
	}
	running.Stop()
	if running.Refusals().Refuses(write) {
		t.Error("a Service that has ended refuses from memory")
	}
}

// TestRefusalsOff checks that a negative bound turns the refusals off.
func TestRefusalsOff(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	script := &refusalScript{refusing: newRefusing(t, b, engine.Config{RefusalsRememberedMax: -1}), lock: "lock"}
	script.expect(t, "acquire", "acquire", "1=v: token_stale superseded", "1=v: token_stale superseded", "external",
		"1=v: admitted")
}

// TestSubmitRefusesEarly checks that submitted writes are refused early, too, and from another goroutine.
func TestSubmitRefusesEarly(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	script := &refusalScript{refusing: r, lock: "lock"}
	script.expect(t, "acquire", "acquire")
	write := script.writeOf(t, "1=v")
	for n := range uint64(3) {
		answers := make(chan string) // without room: done in this goroutine would never end
		r.Submit(patient(t), write, func(result store.Result, err error) {
			answers <- fmt.Sprint(verdictOf(spec.AnswerOfResult(result)), " ", err)
		})
		if got := <-answers; got != "token_stale superseded <nil>" {
			t.Errorf("the answer is %s, want token_stale superseded", got)
		}
		if early := r.RefusedEarly(); early != n {
			t.Errorf("%d of %d writes were refused early", early, n+1)
		}
	}
}

// TestMalformedStaleWrite checks that a write that is malformed and would be refused early has the same error as
// without the memory.
func TestMalformedStaleWrite(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	script := superseded(t, r, "lock")
	write := script.writeOf(t, "1=v")
	early := r.RefusedEarly()
	write.ContentType = "no type"
	_, err := r.Commit(patient(t), write)
	_, direct := b.Write(patient(t), []store.Write{write})
	if err == nil || direct == nil || err.Error() != direct.Error() {
		t.Errorf("the error is %v, and without the memory %v", err, direct)
	}
	if r.RefusedEarly() != early {
		t.Error("a malformed write counts as an early refusal")
	}
}

// TestRefusalsAfterARestore checks that a Service forgets its refusals when a dump is restored beneath it, and that its
// connections work after that.
func TestRefusalsAfterARestore(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	r := newRefusing(t, b, engine.Config{})
	newOthers(t, r.Served).expectServed(t)
	script := superseded(t, r, "lock")
	before := r.Refusals().Forgotten()
	// The state before the second grant comes back, in a schema of the same name.
	b.Exec(t, "drop schema fence cascade")
	if err := b.Migrate(patient(t)); err != nil {
		t.Fatal(err)
	}
	b.Exec(t, "insert into fence.fences (resource, granted_token, open) values ('lock', $1, true)", script.leases[0].Token)
	await(t, "the Service forgets its refusals after the restore",
		func() bool { return r.Refusals().Forgotten() > before })
	script.expect(t, "1.1=v: admitted")
	newOthers(t, r.Served).expectServed(t) // whatever the connections had prepared
}
