package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// endTimeout is how long the gateway may take, after the time of its requests, to end what has no client: the last
// records of rejections, connections to a database that does not answer.
const endTimeout = time.Second

// endInTime does work that should end with ctx. It returns an error, and leaves the work to the end of the process, if
// that takes longer than the shutdown may.
func (c *serveCmd) endInTime(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(c.ShutdownTimeout + endTimeout):
		return fmt.Errorf("the database did not answer until %s after --shutdown-timeout", endTimeout)
	}
}

// background runs tasks until the returned function is called, which waits for their end. They outlive ctx: what was
// noted while the last requests ended is still to be written.
func background(ctx context.Context, tasks ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}
