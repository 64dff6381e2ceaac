// Package flock takes advisory locks on files, with flock(2).
//
// A lock belongs to an open file, not to a process: it is held until every copy of the open file is closed, those of
// child processes that inherited it included, and the kernel closes a dead process's files. So a free lock proves that
// every holder is gone, however it went. Two openings of one file are strangers to each other, within a process as
// well.
package flock

import (
	"context"
	"errors"
	"os"
	"time"
)

// pause lies between two tries of Wait.
const pause = 10 * time.Millisecond

// Release gives up the lock and closes the file. Copies of the open file lose the lock too: unlike a mere Close, this
// leaves no moment in which a child that has been forked, but has not yet closed what it does not inherit, still holds
// it.
func Release(file *os.File) error { return errors.Join(unlock(file), file.Close()) }

// Wait takes the exclusive lock of an open file when it gets free. It returns the cause of ctx's end, or an error of
// Try.
func Wait(ctx context.Context, file *os.File) error {
	for {
		locked, err := Try(file)
		if locked || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
