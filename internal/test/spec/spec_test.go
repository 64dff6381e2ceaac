package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
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
		err := Linearize(State{}, parseCalls(t, test.Input), true, time.Minute)
		switch {
		case err == nil:
			return "right\n"
		case errors.Is(err, ErrNoVerdict):
			t.Fatal(err)
		}
		return "wrong\n"
	})
}

// TestViolations checks which promise each history of testdata/violations.txt breaks.
func TestViolations(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/violations.txt", func(t *testing.T, test *datadriven.TestData) string {
		var calls []Call
		for i, line := range strings.Split(strings.TrimSpace(test.Input), "\n") {
			if line[0] > '9' {
				line = fmt.Sprintf("%d-%d %s", 100+2*i, 101+2*i, line)
			}
			call, err := ParseCall("0 " + shorthand(line))
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call)
		}
		var broken []string
		for _, violation := range Check(calls) {
			broken = append(broken, violation.Promise)
			again := Check(violation.Calls)
			if len(calls) > len(violation.Calls) && len(again) == 0 { // it shows enough
				t.Errorf("of the calls that show it, nothing is violated: %s", violation)
			}
		}
		slices.Sort(broken)
		return cmp.Or(strings.Join(slices.Compact(broken), " "), "right") + "\n"
	})
}

// shorthand makes a call of a line: of a grant, of a record that was found (found NAME KEY VERSION NUMBER VALUE); and
// lease_ids of numbers.
func shorthand(line string) string {
	times, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch words[0] {
	case "grant":
		from, until, _ := strings.Cut(words[4], "-")
		kind := strings.NewReplacer("shared", "mode=shared", "subtree", "scope=subtree").Replace(strings.Join(words[5:], " "))
		line = fmt.Sprintf("%s acquire %s owner=%[3]s request=%[3]s ttl=100us %[4]s -> granted token=%[5]s id=#%[5]s "+
			"! token=%[5]s granted_at=%[6]s until=%[7]s", times, words[1], words[2], kind, words[3], from, until)
	case "found":
		token, sequence, _ := strings.Cut(words[4], ".")
		line = fmt.Sprintf(`%s read-record %s key=%s -> record version=%[4]s record="version=%[4]s token=%s sequence=%s value=%s"`,
			times, words[1], words[2], words[3], token, sequence, words[5])
	}
	return regexp.MustCompile(`#\d+`).ReplaceAllStringFunc(line, func(id string) string {
		return uuid.NewSHA1(uuid.Nil, []byte(id)).String()
	})
}

func parseCalls(t *testing.T, input string) []Call {
	t.Helper()
	var calls []Call
	for i, line := range strings.Split(strings.TrimSpace(input), "\n") {
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
	return calls
}

// TestOrders checks which orders of grants are found to be wrong. Calls are those of TestHistories.
func TestOrders(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/orders.txt", func(t *testing.T, test *datadriven.TestData) string {
		err := InOrder(State{}, parseCalls(t, test.Input))
		if err == nil {
			return "right\n"
		}
		_, reason, _ := strings.Cut(err.Error(), "\nwant ")
		reason, _, _ = strings.Cut(reason, "\n")
		return "wrong: " + strings.TrimSpace(cmp.Or(reason, err.Error())) + "\n"
	})
}

// TestTextsAreRead checks that what is drawn and answered reads the same after it was written, also with names for what
// differs from run to run.
func TestTextsAreRead(t *testing.T) {
	t.Parallel()
	draws := Generator{Names: []store.Name{"a", "a/b", "ä b"}, Owners: []string{"A", "B; c"}, TTL: time.Hour,
		Wait: time.Minute, Gateways: 2, Weights: slices.Concat(Sequential, Waiting, []Weight{{Together, 5}})}
	state := State{}
	choices := FromSeed(1)
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

// TestShortSequences checks all sequences of a few operations on one lock: that tokens rise, that no two leases run which
// conflict, that what is refused changes nothing, and that the sequence as a script leads to the same state.
func TestShortSequences(t *testing.T) {
	t.Parallel()
	sequences := 0
	for choices := (&Exhaust{}); choices.Next(); sequences++ {
		state, scripted, script := State{}, State{}, ""
		for n := range int64(4 + *deeper) {
			op := shortOp(state, choices)
			chosen := Choice{Token: n + 1, ID: uuid.UUID{byte(n + 1)}, GrantedAt: n, Until: n}
			script += state.Text(op) + "\n"
			read, err := ParseOp(state.Text(op), scripted)
			if err != nil {
				t.Fatalf("%s: %v", script, err)
			}
			next, answer := state.Step(op, chosen)
			refused := !slices.Contains([]string{CodeGranted, CodeRenewed, CodeReleased, CodeBroken, CodeAdmitted, CodeDone},
				answer.Code)
			was, _ := state.Granted("n")
			is, _ := next.Granted("n")
			scripted, _ = scripted.Step(read, chosen)
			switch {
			case refused && !next.Equal(state), is < was || is == was && answer.Code == CodeGranted, oneHolder(&next) != "":
				t.Fatalf("%s-> %s\nfrom %s\nto   %s", script, answer, state.Summary(), next.Summary())
			case answer.Code == CodeBroken && len(next.Resource("n").Running()) > 0,
				answer.Code == CodeReleased && next.Runs("n", op.Token):
				t.Fatalf("%s-> %s, and the lease runs", script, answer)
			case !scripted.Equal(next) || scripted.Hash() != next.Hash():
				t.Fatalf("%sas a script leads to\n%s, not\n%s", script, scripted.Summary(), next.Summary())
			}
			state = next
		}
	}
	if want := math.Pow(11, float64(4+*deeper)); float64(sequences) != want {
		t.Errorf("%d sequences were run, not %.0f", sequences, want)
	}
}

func shortOp(s State, c Choices) Op {
	newest := Lease{Lock: "n", Owner: "A"}
	oldest := newest
	if leases := s.Leases(); len(leases) > 0 {
		oldest, newest = leases[0], leases[len(leases)-1]
	}
	_, sequence := s.Last("n")
	put := Op{Kind: Put, Name: "n", Key: "k", Sequence: new(sequence + 1), Token: newest.Token}
	late := put
	late.Token = oldest.Token
	on := func(kind Kind, lease Lease) Op {
		return Op{Kind: kind, Name: "n", Owner: lease.Owner, Token: lease.Token, LeaseID: lease.ID}
	}
	return pick(c, []Op{
		{Kind: Acquire, Name: "n", Owner: "A"}, {Kind: Acquire, Name: "n", Owner: "B"},
		{Kind: Acquire, Name: "n", Owner: "B", Mode: store.Shared}, {Kind: Break, Name: "n"}, put, late,
		on(Renew, newest), on(Release, newest), on(Renew, oldest), on(Release, oldest), on(Expire, newest),
	})
}
