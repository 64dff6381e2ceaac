package waitqueue

import "context"

// SendHeartbeat sends a heartbeat now.
func (l *Queue) SendHeartbeat(ctx context.Context) error { return l.beat(ctx) }

// DeadlocksChecked reports whether all waits here have been looked at for cycles.
func (l *Queue) DeadlocksChecked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.deadlocks.checking && len(l.deadlocks.pending) == 0
}
