package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// TestHistories checks which histories the search finds to be wrong. In testdata/histories.txt, calls come one after the
// other, unless they begin with their times. A lease_id or session is named by a number, times of the database are seconds.
func TestHistories(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/histories.txt", func(t *testing.T, test *datadriven.TestData) string {
		var calls []Call
		for i, line := range strings.Split(strings.TrimSpace(test.Input), "\n") {
			if line[0] > '9' {
				line = fmt.Sprintf("%d-%d %s", 2*i, 2*i+1, line)
			}
			call, err := ParseCall("0 " + line)
			if err != nil {
				t.Fatal(err)
			}
			if call.Op.Kind == Acquire && call.Answer.Code == CodeGranted {
				call.Answer.ID, call.Answer.Owner = uuid.NewSHA1(uuid.Nil, []byte{byte(call.Answer.Token)}), call.Op.Owner
				call.Answer.Lease = kindOf(cmp.Or(call.Op.Mode, store.Exclusive), cmp.Or(call.Op.Scope, store.Node))
				call.Chosen.Token, call.Chosen.ID = call.Answer.Token, call.Answer.ID
				call.Answer.ExpiresAt = call.Chosen.Until
			}
			calls = append(calls, call)
		}
		err := Linearize(State{}, calls, true, time.Minute)
		switch {
		case err == nil:
			return "right\n"
		case errors.Is(err, ErrNoVerdict):
			t.Fatal(err)
		}
		return "wrong\n"
	})
}

// TestTextsAreRead checks that what is drawn and answered reads the same after it was written, also with names for what
// differs from run to run.
func TestTextsAreRead(t *testing.T) {
	t.Parallel()
	draws := Generator{Names: []store.Name{"a", "a/b", "ä b"}, Owners: []string{"A", "B; c"}, Weights: Sequential, TTL: time.Hour}
	state := State{}
	choices := fromSeed{rand.New(rand.NewPCG(1, 2))}
	for n := range int64(2000) {
		op := draws.Next(state, choices)
		read, err := ParseOp(state.Text(op), state)
		if err != nil || read.String() != op.String() {
			t.Fatalf("%s\nis read as\n%s (%v)", op, read, err)
		}
		next, answer := state.Step(op, Choice{Token: n + 1, ID: uuid.New(), GrantedAt: n, Until: n + 1000})
		call := Call{Client: 1, Sent: n, Answered: Never, Op: op, Answer: answer, Chosen: Choice{Token: n, Until: 1}}
		again, err := ParseCall(call.String())
		if err != nil || again.String() != call.String() {
			t.Fatalf("%s\nis read as\n%s (%v)", call, again, err)
		}
		state = next
	}
}

type fromSeed struct{ *rand.Rand }

func (s fromSeed) Below(n int) int { return s.IntN(n) }
