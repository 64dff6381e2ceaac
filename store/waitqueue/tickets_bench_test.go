package waitqueue

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// BenchmarkQueueDrain measures what this process does for its waiters while a long queue is served, one after the
// other:
//
//	go test ./store/waitqueue -run '^$' -bench BenchmarkQueueDrain -benchtime 5x
func BenchmarkQueueDrain(b *testing.B) {
	const waiters = 10_000
	for b.Loop() {
		q := New(nil, uuid.New(), Config{})
		all := make([]*waiter, waiters)
		for i := range all {
			all[i] = newWaiter(store.AcquireRequest{Lock: "lock", RequestID: fmt.Sprint(i)})
			q.join(all[i])
			q.locks["lock"].setTicket(all[i], int64(i+1))
		}
		for i, w := range all {
			lq := q.locks["lock"]
			ticket := lq.first(false)
			granted := store.QueueResult{
				Ticket: ticket, RequestID: w.request.RequestID, Done: true, Lease: store.Lease{Token: 1},
			}
			if ticket != int64(i+1) || !lq.deliver(granted) {
				b.Fatalf("the first ticket is %d, want %d, with a waiter that takes the lease", ticket, i+1)
			}
			q.quit(w, &granted.Lease)
		}
	}
}
