package spec

import (
	"fmt"
	"slices"

	"github.com/fencegate/fencegate/store"
)

// InOrder checks what a database decided about locks, in the order in which it did: acquires that joined the queue
// (CodeQueued) or were granted, leases that ended (Expire) and waiters that left. Each grant must be that of the contract:
// beside no other (P1), with a greater token (P2), to the first in the queue (P8). In the end nobody waits.
//
// A waiter that waits for less than store.WaitMax may be passed, since its time may be over, which nobody decides. It
// keeps its place, as its gateway asks once more.
func InOrder(state State, decided []Call) error {
	for i, call := range decided {
		next, answer := state.decide(call)
		if answer.Code != call.Answer.Code {
			return fmt.Errorf("%s\nwant %s\nin %s\nafter\n%s", call, answer, state.Summary(),
				lines(decided[max(0, i-20):i]))
		}
		state = next
	}
	if left := state.queue; len(left) > 0 {
		return fmt.Errorf("%d still wait, the first is %s", len(left), left[0])
	}
	return nil
}

func (s State) decide(call Call) (State, Answer) {
	op := call.Op
	if call.Answer.Code != CodeGranted {
		return s.Step(op, call.Chosen)
	}
	waits := func(w Op) bool { return w.Name == op.Name && w.Request == op.Request && w.Request != "" }
	moment := s
	moment.queue = slices.DeleteFunc(slices.Clone(s.queue), func(w Op) bool { return w.Wait < store.WaitMax && !waits(w) })
	if op.Wait = 0; slices.ContainsFunc(s.queue, waits) {
		op.Kind = Serve
	}
	next, answer := moment.Step(op, call.Chosen)
	next.queue = slices.DeleteFunc(slices.Clone(s.queue), waits)
	return next, answer
}

func lines(calls []Call) (text string) {
	for _, call := range calls {
		text += call.String() + "\n"
	}
	return text
}
