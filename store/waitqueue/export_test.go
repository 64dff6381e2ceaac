package waitqueue

import (
	"context"
	"time"
)

// InsistAfter has all waits leave it for so long to a later one of their cycle to be refused. It is for TestMain.
func InsistAfter(pause time.Duration) { deadlockInsistAfter = pause }

// SendHeartbeat sends a heartbeat now.
func (q *Queue) SendHeartbeat(ctx context.Context) error { return q.heartbeat(ctx) }

// DeadlocksChecked reports whether all waits here have been checked for cycles.
func (q *Queue) DeadlocksChecked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.checking && len(q.unchecked) == 0
}
