package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
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
	answer := verdictOf(storetest.WriteAnswer(result))
	if r.RefusedEarly() == before {
		return answer, nil
	}
	judged, err := r.direct.Write(ctx, []store.Write{write})
	if err != nil {
		return "", err
	}
	if want := verdictOf(storetest.WriteAnswer(judged[0])); answer != want {
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
