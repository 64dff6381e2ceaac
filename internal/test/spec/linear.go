package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencegate/fencegate/store"
)

// Call is an operation that a client sent, and its answer. Times are nanoseconds by one clock, which only rises.
type Call struct {
	Client         int
	Sent, Answered int64 // Answered is Never if there was no answer: it may take effect at any time after it was sent
	Op             Op
	Answer         Answer
	Chosen         Choice // by the provider; of an acquire also where the answer was lost, if it was granted
}

// Never is after all times.
const Never = math.MaxInt64

// String is a line that ParseCall reads.
func (c Call) String() string {
	answered := "never"
	if c.Answered != Never {
		answered = strconv.FormatInt(c.Answered, 10)
	}
	text := fmt.Sprintf("%d %d-%s %s -> %s", c.Client, c.Sent, answered, c.Op, c.Answer)
	if chosen := (names{}).fields(c.Chosen); chosen != "" {
		text += " !" + chosen
	}
	return text
}

// ParseCall reads a line as of Call.String.
func ParseCall(line string) (call Call, err error) {
	text, chosen, _ := strings.Cut(line, " ! ")
	head, answer, _ := strings.Cut(text, " -> ")
	words := strings.SplitN(head, " ", 3)
	if len(words) < 3 {
		return call, fmt.Errorf("%q is not a call", line)
	}
	sent, answered, _ := strings.Cut(words[1], "-")
	call.Answered = Never
	var failed [6]error
	call.Client, failed[0] = strconv.Atoi(words[0])
	call.Sent, failed[1] = strconv.ParseInt(sent, 10, 64)
	if answered != "never" {
		call.Answered, failed[2] = strconv.ParseInt(answered, 10, 64)
	}
	call.Op, failed[3] = names{}.parseOp(words[2])
	call.Answer, failed[4] = parseAnswer(answer)
	failed[5] = names{}.read(strings.Fields(chosen), &call.Chosen)
	return call, errors.Join(failed[:]...)
}

// ErrNoVerdict says that a search was given up.
var ErrNoVerdict = errors.New("no verdict on a history within the time")

// Linearize looks for an order of the calls in which the contract gives the same answers, and returns an error with the
// end of the longest order if there is none. The calls may be put in any order that their times allow, and leases may run
// out at any moment. Names are looked at one by one, unless they are written together, or are in one tree.
//
// The work grows fast with the number of calls at a time, and with that of calls that were never answered: histories of
// some hundred calls on a name, with six at a time, take milliseconds. ErrNoVerdict after the patience.
//
// The search is that of porcupine (Lowe, "Testing for linearizability", 2016).
func Linearize(initial State, calls []Call, together bool, patience time.Duration) error {
	model := (&porcupine.NondeterministicModel{
		Init:  func() []any { return []any{initial} },
		Step:  func(state, input, output any) []any { return state.(State).after(input.(Op), output.(Call)) },
		Equal: func(a, b any) bool { return a.(State).Equal(b.(State)) },
		Hash:  func(state any) uint64 { return state.(State).Hash() },
	}).ToModel()
	parts := [][]porcupine.Operation{operations(calls)}
	if !together {
		parts = byName(parts[0])
	}
	for _, part := range parts {
		result, info := porcupine.CheckOperationsVerbose(model, part, patience)
		switch {
		case result == porcupine.Unknown:
			return fmt.Errorf("%w: %d operations, %s", ErrNoVerdict, len(part), patience)
		case result != porcupine.Ok:
			return noOrder(part, info)
		}
	}
	return nil
}

// sessionOver is the first half of the end of a session: it is over, and then its fences are closed, one by one.
const sessionOver Kind = "session-over"

func operations(calls []Call) []porcupine.Operation {
	var operations []porcupine.Operation
	for _, call := range calls {
		add := func(op Op, call Call) {
			operations = append(operations, porcupine.Operation{
				ClientId: call.Client, Input: op, Output: call, Call: call.Sent, Return: call.Answered,
			})
		}
		switch {
		case call.Answer.Code == CodeNotApplied:
		case call.Op.Kind == EndSession:
			over := call
			over.Answer = Answer{Code: CodeDone}
			add(Op{Kind: sessionOver, Session: call.Op.Session}, over)
			fallthrough
		default:
			add(call.Op, call)
		}
	}
	return operations
}

func byName(operations []porcupine.Operation) [][]porcupine.Operation {
	of := map[store.Name][]porcupine.Operation{}
	for _, operation := range operations {
		name := operation.Input.(Op).Name
		of[name] = append(of[name], operation)
	}
	parts := make([][]porcupine.Operation, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, of[name])
	}
	return parts
}

// after returns the possible states after a call; none if the contract could not have given the answer. Leases run out at
// any moment: the answer is allowed if it is right with any of the leases run out just before. As few as possible are
// taken to have run out, since the others still may. The effects of a break and of a call with an unknown outcome depend
// on which.
func (s State) after(op Op, call Call) []any {
	var states []any
	for _, moment := range s.moments(s.concerned(op)) {
		next, answer := moment.predict(op, call)
		switch {
		case !call.allows(op, answer):
		case op.Reads():
			// A read sees the data of one moment, but reads the clock later, without the fence's lock. A renewal may
			// come between, so expiry seen by a read doesn't bind the state.
			return []any{s}
		case op.Kind == Break, call.Answer.Code == CodeUnknown:
			states = append(states, next)
		default:
			return []any{next}
		}
	}
	return states
}

func (s State) predict(op Op, call Call) (State, Answer) {
	switch op.Kind {
	case sessionOver:
		return s.sessionOver(op.Session, Released, 0), Answer{Code: CodeDone}
	case EndSession:
		if session, ok := s.session(op.Session); ok && session.End == Running {
			return s, Answer{Code: "the session is to be over first"}
		}
		next, answer := s.endSession(op.Session)
		answer.Leases = call.Answer.Leases // how many ran, was seen when it was over
		return next, answer
	}
	return s.Step(op, call.Chosen)
}

// allows reports whether the answer agrees with the contract's. A call whose outcome is unknown may have happened at any
// time after it was made; if it never did, that is as if it had happened after all others. An acquire with an unknown
// outcome was granted, see [Resolve].
func (c Call) allows(op Op, predicted Answer) bool {
	switch {
	case c.Answer.Code != CodeUnknown:
		return predicted.Same(c.Answer)
	case op.Kind == Acquire:
		return predicted.Token == c.Chosen.Token || predicted.Code == CodeLost
	}
	return true
}

// concerned are the names whose leases the answer depends on.
func (s State) concerned(op Op) []store.Name {
	switch op.Kind {
	case Acquire:
		return s.around(op.Name)
	case Renew, Release, Break, ReadLock:
		return []store.Name{op.Name}
	}
	names := []store.Name{op.Name}
	for _, part := range op.Parts {
		names = append(names, part.Name)
	}
	return slices.DeleteFunc(names, func(name store.Name) bool { return !s.Policy(name).RequireLiveLease })
}

// Resolve compares the grants with the leases, which are all that the database has. It finds the leases whose grants were
// not answered, and removes the acquires that were never granted, by their request_ids. A grant that was answered and is
// not there is an error (P9).
func Resolve(calls []Call, leases []Lease) ([]Call, error) {
	granted := map[string]Lease{}
	kept := map[grantOf]Lease{}
	for _, lease := range leases {
		granted[string(lease.Lock)+" "+lease.Request] = lease
		kept[grantOf{lease.Lock, lease.Token}] = lease
	}
	var lost error
	resolved := calls[:0]
	for _, call := range calls {
		if call.Op.Kind == Acquire {
			lease, found := granted[string(call.Op.Name)+" "+call.Op.Request]
			switch call.Answer.Code {
			case CodeGranted:
				if kept[grantOf{call.Op.Name, call.Answer.Token}].ID != call.Answer.ID {
					lost = errors.Join(lost, fmt.Errorf("P9: a grant was answered, and the database has no such lease: %s", call))
				}
			case CodeUnknown:
				if !found {
					continue
				}
				call.Chosen = Choice{Token: lease.Token, ID: lease.ID, GrantedAt: lease.GrantedAt, Until: lease.ExpiresAt}
			}
		}
		resolved = append(resolved, call)
	}
	return resolved, lost
}

// noOrder is the error for calls of which no order is allowed.
func noOrder(part []porcupine.Operation, info porcupine.LinearizationInfo) error {
	var order []int
	for _, other := range info.PartialLinearizations()[0] {
		if len(other) > len(order) {
			order = other
		}
	}
	text := &strings.Builder{}
	fmt.Fprintf(text, "no order of the calls has these answers by the contract, the longest has %d of %d; its last:",
		len(order), len(part))
	for i, index := range order {
		if i >= len(order)-10 {
			fmt.Fprintf(text, "\n%s", part[index].Output.(Call))
		}
	}
	fmt.Fprint(text, "\nthen none of these can follow:")
	var left []Call
	for index, operation := range part {
		if !slices.Contains(order, index) {
			left = append(left, operation.Output.(Call))
		}
	}
	slices.SortFunc(left, func(a, b Call) int { return cmp.Compare(a.Sent, b.Sent) })
	for _, call := range left[:min(len(left), 30)] {
		fmt.Fprintf(text, "\n%s", call)
	}
	return errors.New(text.String())
}
