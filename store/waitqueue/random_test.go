package waitqueue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestRandomQueues makes random calls, one after the other, to three engines, where acquires wait: each waiter is granted
// its lock when the contract says so, and not before. There is no polling.
func TestRandomQueues(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]spec.Generator{"flat": flatWaits, "trees": treeWaits, "wide": wideWaits} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)
			counts := drive.Sequences(t, s.target(t), calls)
			for _, code := range []string{spec.CodeQueued, spec.CodeDeadlock, spec.CodeHeld, spec.CodeInvalid} {
				if counts[code] == 0 {
					t.Errorf("no call was answered %s", code)
				}
			}
		})
	}
}

var (
	flatWaits = spec.Generator{
		Names: []store.Name{"a", "b"}, Owners: []string{"A", "B", "C", "D", "E"}, Weights: spec.Waiting,
		TTL: time.Hour, TTLSpread: time.Second, Wait: store.WaitMax, Gateways: 3, Flat: true,
	}
	wideWaits = spec.Generator{ // for the search for cycles
		Names:  []store.Name{"a", "a/b", "a/b/c", "a/d", "b", "c", "d", "e"},
		Owners: []string{"A", "B", "C", "D", "E", "F", "G", "H", "I"}, Weights: []spec.Weight{{Kind: spec.Acquire, Share: 12}, {Kind: spec.Release, Share: 1}},
		TTL: time.Hour, Wait: store.WaitMax, Gateways: 3,
	}
	treeWaits = spec.Generator{
		Names: []store.Name{"a", "a/b", "a/b/c"}, Owners: []string{"A", "B", "C", "D", "E"}, Weights: spec.Waiting,
		TTL: time.Hour, TTLSpread: time.Second, Wait: store.WaitMax, Gateways: 3,
	}
)

// target is the engines for a driver.
func (s *engines) target(t *testing.T) *drive.Queue {
	t.Helper()
	sweeper := enginetest.NewSweeper(t, s.Store, postgres.SweeperConfig{})
	target := &drive.Queue{SQL: s.SQL, Limit: enginetest.AnswerLimit, Sweep: func(ctx context.Context) error {
		_, err := sweeper.Sweep(ctx)
		// A sweep leaves a lock to a later one that a grant of an engine has locked for longer than a moment.
		for err != nil && store.OutcomeOf(err) == store.OutcomeUnknown && ctx.Err() == nil {
			s.Exec(t, "update fence.sessions set check_at = clock_timestamp() where not settled")
			_, err = sweeper.Sweep(ctx)
		}
		return err
	}}
	for _, on := range s.All {
		target.Gateways = append(target.Gateways, on)
	}
	return target
}

// TestRandomQueuesCatch checks that they find what is wrong with a function of the database that is broken in one place.
func TestRandomQueuesCatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		calls                   spec.Generator
		function, text, instead string
	}{
		{"readers jump the queue", flatWaits, "must_queue", "w.ticket < p_ticket and w.mode = 'exclusive')", "false)"},
		{"a waiter above is overlooked", treeWaits, "must_queue", "w.scope = 'subtree' and w.ticket < p_ticket", "false"},
		{"the last is passed the lock", flatWaits, "grant_waiters", "order by w.ticket loop",
			"order by w.ticket desc loop"},
		{"one that leaves wakes nobody", flatWaits, "leave",
			"perform fence.wake(v_waiter.lock, v_waiter.scope, 0);", ""},
		{"a ticket is not taken over", flatWaits, "acquire_lease", "set gateway_id = p_gateway_id, deadline_at",
			"set deadline_at"},
		{"leases close no cycle", flatWaits, "find_deadlocks",
			"l.principal = w.principal and l.ended_at is null", "false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)
			source, ok := migrations.GuardSource(c.function)
			if !ok || strings.Count(source, c.text) != 1 {
				t.Fatalf("%s.SQL must have %q once", c.function, c.text)
			}
			s.Exec(t, strings.Replace(source, c.text, c.instead, 1))
			target := s.target(t)
			target.Limit = 3 * time.Second
			for seed := uint64(1); seed <= 150; seed++ {
				if err := drive.Random(t.Context(), target, c.calls, fmt.Sprint("seed-", seed), seed, 40); err != nil {
					t.Logf("found in sequence %d: %.300s", seed, err)
					return
				}
			}
			t.Error("150 sequences were found to be right")
		})
	}
}
