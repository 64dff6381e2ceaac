package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// GCPause shows a worker whose own runtime stops, and with it its heartbeat, for longer than its lease: a garbage
// collection waits for a loop that can't be interrupted. The outcome is that of [Zombie.Run].
func GCPause(ctx context.Context, config Config) error {
	return config.Run(ctx, &gcPause{})
}

type gcPause struct {
	NoFailure

	enough *os.File // its first byte tells the loop of A whether it has computed enough
}

func (g *gcPause) Prepare(_ context.Context, r *Round) (err error) {
	g.Stop()
	if g.enough, err = os.CreateTemp("", "fencegate-demo-"); err != nil {
		return err
	}
	r.A.Heartbeat, r.A.Busy = true, g.enough.Name()
	r.environmentOfA = []string{"GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=2"}
	return g.write(0)
}

func (g *gcPause) Heal(context.Context, *Round) error { return g.write(1) }

func (g *gcPause) write(enough byte) error {
	_, err := g.enough.WriteAt([]byte{enough, 0, 0, 0}, 0)
	return err
}

func (g *gcPause) Stop() {
	if g.enough != nil {
		_ = errors.Join(g.enough.Close(), os.Remove(g.enough.Name()))
		g.enough = nil
	}
}

// pauses is the metric of the time from a garbage collection's wish to stop the world until the world runs again.
const pauses = "/sched/pauses/total/gc:seconds"

// busyMax ends the loop, after a minute or so, of a worker whose demo was killed.
const busyMax = 1 << 34

// workBusy computes in a loop without a function call, beside garbage collections. A collection must stop every goroutine
// first. This one can't be stopped, given GODEBUG=asyncpreemptoff=1: so the collection waits for it, and all the others,
// that of the heartbeat among them, wait for the collection. Such a process can't read a message either: the file is how
// it learns that it has computed enough.
func (w Worker) workBusy(emit func(Event)) error {
	enough, unmap, err := mapNumber(w.Busy)
	if err != nil {
		return err
	}
	defer unmap()
	emit(Event{Event: "working", Text: "works on it, in a loop that its runtime can't interrupt; a garbage collection begins"})

	var computed atomic.Bool
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for !computed.Load() {
			runtime.GC()
		}
	})
	for i := 0; i < busyMax && atomic.LoadUint32(enough) == 0; i++ { //nolint:revive // this is the loop
	}
	computed.Store(true)
	collecting.Wait()
	emit(Event{Event: "resumed", Text: fmt.Sprintf(
		"goes on: its runtime had stopped the world, and its heartbeat, for more than %s", longestPause())})
	return nil
}

// longestPause returns the lower bound of the longest pause for a garbage collection so far.
func longestPause() time.Duration {
	samples := []metrics.Sample{{Name: pauses}}
	metrics.Read(samples)
	longest := 0.0
	histogram := samples[0].Value.Float64Histogram()
	for i, count := range histogram.Counts {
		if count > 0 {
			longest = histogram.Buckets[i]
		}
	}
	return time.Duration(longest * float64(time.Second)).Round(10 * time.Millisecond)
}
