// Package timing has the two ways in which the loops of the store and its machines wait.
package timing

import (
	"context"
	"time"
)

// Sleep waits. It returns earlier if ctx ends.
func Sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Every does work at each interval until ctx ends, and passes its errors to onError.
func Every(ctx context.Context, interval time.Duration, onError func(error), work func() error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := work(); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}
