package waitqueue

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// BenchmarkQueueDrain measures what this process does for its waiters while a long queue of them is served, one after the other:
//
//	go test ./store -run '^$' -bench BenchmarkQueueDrain -benchtime 5x
func BenchmarkQueueDrain(b *testing.B) {
	const waiters = 10_000
	for b.Loop() {
		l := New(nil, uuid.New(), Config{})
		all := make([]*waiter, waiters)
		for i := range all {
			all[i] = &waiter{request: fmt.Sprint(i), told: make(chan told, 1)}
			l.join("lock", all[i])
			l.queues["lock"].setTicket(all[i], int64(i+1))
		}
		for i, w := range all {
			q := l.queues["lock"]
			if ticket := q.first(false); ticket != int64(i+1) || !q.tell(store.QueueResult{Ticket: ticket, RequestID: w.request, Done: true, Lease: store.Lease{Token: 1}}) {
				b.Fatalf("place %d: the first ticket is %d", i, ticket)
			}
			l.quit("lock", w, store.Lease{Token: 1})
		}
	}
}
