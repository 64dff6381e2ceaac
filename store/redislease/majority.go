package redislease

import (
	"context"
	"slices"
	"sync"
	"time"
)

// quorum is the number of servers that are more than half of them. Any two quorums have a server in common.
func quorum(of int) int { return of/2 + 1 }

// answer is what one server said to a call.
type answer[T any] struct {
	server *server
	value  T
	err    error
}

// ask calls the servers at the same time, each for no longer than the timeout. It returns the answers as soon as they are
// enough, or all. Calls that still run then end by themselves; running counts them.
func ask[T any](
	ctx context.Context, running *sync.WaitGroup, servers []*server, timeout time.Duration,
	call func(context.Context, *server) (T, error), enough func([]answer[T]) bool,
) []answer[T] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	came := make(chan answer[T], len(servers))
	var calls sync.WaitGroup
	for _, s := range servers {
		calls.Go(func() {
			value, err := call(ctx, s)
			came <- answer[T]{s, value, err}
		})
	}
	running.Go(func() {
		calls.Wait()
		cancel()
	})
	limit := time.NewTimer(2 * timeout) // of a call that does not heed its context
	defer limit.Stop()
	answers := make([]answer[T], 0, len(servers))
	for len(answers) < len(servers) && !enough(answers) {
		select {
		case a := <-came:
			answers = append(answers, a)
		case <-limit.C:
			return answers
		}
	}
	return answers
}

// all is the condition of ask that waits for every server.
func all[T any]([]answer[T]) bool { return false }

// decided returns the condition of ask that a quorum of all servers has said yes, or can't any more.
func decided[T any](of int, yes func(T) bool) func([]answer[T]) bool {
	return func(answers []answer[T]) bool {
		said := count(answers, yes)
		return said >= quorum(of) || said+of-len(answers) < quorum(of)
	}
}

// count returns how many servers gave an answer of which holds is true.
func count[T any](answers []answer[T], holds func(T) bool) int {
	n := 0
	for _, a := range answers {
		if a.err == nil && holds(a.value) {
			n++
		}
	}
	return n
}

// left is how long a lease still runs by the times that the servers have for it: 0 where a server does not have it, less
// than 0 where the server did not answer. A quorum must have it. known is false where the silent servers decide.
func left(times []time.Duration) (left time.Duration, known bool) {
	silent := 0
	for _, t := range times {
		if t < 0 {
			silent++
		}
	}
	sorted := slices.Clone(times)
	slices.Sort(sorted)
	slices.Reverse(sorted) // the longest first, the silent last
	need := quorum(len(times))
	certain := max(0, sorted[need-1])
	if need <= silent {
		return certain, false
	}
	possible := max(0, sorted[need-1-silent]) // if the silent had it for ever
	return certain, certain > 0 || possible == 0
}
