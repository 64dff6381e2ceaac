package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// BenchmarkOpenTransactions measures how long acquires of free locks take while transactions of other sessions stay open:
// some that keep a fence each, with two clients that acquire each of these locks again and again; or one that requests a
// subtree, with sixty clients that acquire locks below it.
func BenchmarkOpenTransactions(b *testing.B) {
	for _, guards := range []int{0, 4, 12, 40} {
		b.Run(fmt.Sprintf("guards=%d", guards), func(b *testing.B) {
			names := make([]string, guards)
			for i := range names {
				names[i] = string(numbered("hot", i))
			}
			benchmarkAcquires(b, lockFencesSQL, names, slices.Concat(names, names))
		})
	}
	b.Run("subtree", func(b *testing.B) {
		names := make([]string, 60)
		for i := range names {
			names[i] = "hot/" + string(numbered("below", i))
		}
		benchmarkAcquires(b, lockSubtreeSQL, []string{"hot"}, names)
	})
}

// benchmarkAcquires measures acquires beside clients of the stuck locks, while a statement locks what these need.
func benchmarkAcquires(b *testing.B, lockSQL string, locked, stuck []string) {
	bed := newTestbed(b)
	acquire := func(ctx context.Context, lock store.Name) error {
		lease, err := bed.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "w"})
		if err == nil {
			err = bed.Release(ctx, lease.Ref())
		}
		return err
	}
	for _, name := range slices.Concat(stuck, []string{"first"}) {
		if err := acquire(b.Context(), store.Name(name)); err != nil {
			b.Fatal(err)
		}
	}
	tx, err := bed.SQL.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(b.Context())) //nolint:errcheck // it only locks
	if _, err := tx.Exec(b.Context(), lockSQL, locked); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var clients sync.WaitGroup
	for _, name := range stuck {
		clients.Go(func() {
			for ctx.Err() == nil {
				_ = acquire(ctx, store.Name(name))
			}
		})
	}
	time.Sleep(2 * time.Second) // until all clients have met the locks
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		begun := time.Now()
		if err := acquire(b.Context(), numbered("new", i)); err != nil { // without a fence, so no batch decides it
			b.Log(err)
		}
		took = append(took, time.Since(begun))
	}
	stop()
	clients.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}
