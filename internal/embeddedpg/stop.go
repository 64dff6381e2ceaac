package embeddedpg

import (
	"context"
	"fmt"
	"time"
)

// immediateLimit bounds an immediate shutdown. PostgreSQL kills its own children after 5 s of it.
const immediateLimit = 10 * time.Second

// Stop shuts PostgreSQL down: clients are disconnected, their transactions rolled back, a checkpoint is made. It
// returns when PostgreSQL has ended; nil also if it had ended before, and ErrEnded if it failed on the way. If ctx ends
// first, PostgreSQL is shut down at once instead, and Stop returns an error that wraps ctx's cause: nothing
// acknowledged is lost, the next start recovers.
func (c *Cluster) Stop(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.requested.CompareAndSwap(nothing, fastShutdown)
	_ = interrupt(c.cmd.Process) // fails if it has ended
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if c.end() {
		return nil
	}
	return fmt.Errorf("PostgreSQL had to be stopped at once and will recover at its next start: %w", context.Cause(ctx))
}

// end shuts PostgreSQL down without a checkpoint, by force if need be, and returns when it has ended. It reports
// whether PostgreSQL had ended before.
func (c *Cluster) end() (ended bool) {
	select {
	case <-c.done:
		return true
	default:
	}
	c.requested.Store(immediateShutdown)
	_ = quit(c.cmd.Process) // fails if it has ended
	limit := time.NewTimer(immediateLimit)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.Kill()
	}
	return false
}

// Kill kills all processes of PostgreSQL at once, as a power failure would, and returns when the postmaster has ended.
// It is for fault tests. Err then says that it was killed.
func (c *Cluster) Kill() {
	select {
	case <-c.done:
		return
	default:
	}
	// Frozen, the postmaster starts no more processes and does not reap its children, whose pids so stay theirs. The
	// signal takes effect when it likes: repeat until no new child shows up.
	_ = freeze(c.cmd.Process)
	killed := map[int]bool{}
	for news := true; news; {
		news = false
		for _, child := range children(c.PID()) {
			if !killed[child] {
				killed[child], news = true, true
				_ = kill(child)
			}
		}
	}
	_ = c.cmd.Process.Kill()
	<-c.done
}
