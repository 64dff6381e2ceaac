package migrations_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

var randomDuration = flag.Duration("guard.duration", 0,
	"how long TestGuardAtRandom runs at each isolation level; 0: until it has seen every kind of answer")

// TestRandomSQL makes random calls, one after the other, by the SQL functions and, for what they don't do, by a Store: the
// answers must be those of the specification, also to transactions whose snapshot is older than a grant.
func TestRandomSQL(t *testing.T) {
	t.Parallel()
	randomSQL(t, enginetest.New(t))
}

func randomSQL(t *testing.T, db *enginetest.DB) {
	t.Helper()
	client := drive.NewSQL(t, db.URL, db.Store)
	sweeper := enginetest.NewSweeper(t, db.Store, postgres.SweeperConfig{})
	target := drive.Store{Service: client, SQL: db.SQL, Sweep: func(ctx context.Context) error {
		_, err := sweeper.Sweep(ctx)
		return err
	}}
	drive.Sequences(t, target, client.Calls())
}

// TestGuardAtRandom checks that rows of a protected table change only under the newest token, whatever many clients do at
// once, at each isolation level: they take names and nested subtrees, release and break them, and write, in time or late,
// by the guard of the name or of one above, or by the setting, with snapshots older than a newer grant, with savepoints,
// and without a token. The seed is logged. A run is not the same twice, since the server schedules the clients.
func TestGuardAtRandom(t *testing.T) {
	t.Parallel()
	for _, level := range spec.Levels {
		t.Run(level, func(t *testing.T) {
			if *randomDuration == 0 {
				t.Parallel()
			}
			guardAtRandom(t, enginetest.New(t), level)
		})
	}
}

func guardAtRandom(t *testing.T, db *enginetest.DB, level string) {
	t.Helper()
	clients := drive.Clients{Count: 4, SlotsMax: 4, For: 500 * time.Millisecond, Seed: rand.Uint64(), Levels: []string{level},
		Weights: []spec.Weight{{Kind: spec.Acquire, Share: 4}, {Kind: spec.Guard, Share: 12}, {Kind: spec.Expire, Share: 4},
			{Kind: spec.Release, Share: 1}, {Kind: spec.Break, Share: 1}}}
	for range clients.Count {
		clients.Gateways = append(clients.Gateways, drive.NewSQL(t, db.URL, db.Store))
	}
	answers, round := map[string]int{}, 0
	for until := time.Now().Add(*randomDuration); ; round++ {
		t.Logf("round %d has seed %d", round, clients.Seed)
		clients.Seed++
		clients.Names = nil
		for _, name := range []string{"", "/a", "/a/1", "/b"} {
			clients.Names = append(clients.Names, store.Name(fmt.Sprint("round-", round, name)))
		}
		calls, _, err := clients.Run(t.Context(), spec.State{})
		if err == nil {
			err = clients.Gateways[0].(*drive.SQL).CheckOrder(t.Context(), clients.Names, calls)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			if call.Op.Kind == spec.Guard {
				answers[call.Answer.Code]++
			}
		}
		enough := answers[spec.CodeAdmitted] >= 50 && answers["token_required"] > 0 && answers["token_stale"] > 0 &&
			answers[spec.CodeTokenReused] > 0 && (level == "" || answers[spec.CodeSnapshot] > 0)
		if enough && time.Now().After(until) {
			break
		}
	}
	t.Logf("%d rounds: %v", round+1, answers)
}
