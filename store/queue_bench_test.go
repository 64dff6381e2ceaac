package store

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
)

// BenchmarkQueueDrain measures what this process does for its waiters while a long queue of them is served, one after the other:
//
//	go test ./store -run '^$' -bench BenchmarkQueueDrain -benchtime 5x
func BenchmarkQueueDrain(b *testing.B) {
	const waiters = 10_000
	for b.Loop() {
		l := newLine(nil, uuid.New(), ServiceConfig{})
		all := make([]*waiter, waiters)
		for i := range all {
			all[i] = &waiter{request: fmt.Sprint(i), told: make(chan told, 1)}
			l.join("lock", all[i])
			l.queues["lock"].setTicket(all[i], int64(i+1))
		}
		for i, w := range all {
			q := l.queues["lock"]
			if ticket := q.first(false); ticket != int64(i+1) || !q.tell(claimed{ticket: ticket, request: w.request, told: &told{lease: Lease{Token: 1}}}) {
				b.Fatalf("place %d: the first ticket is %d", i, ticket)
			}
			l.quit("lock", w, Lease{Token: 1})
		}
	}
}
