package rig

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
)

// Load is what clients got done.
type Load struct {
	// Latencies of all clients, ascending.
	Latencies []time.Duration
	Took      time.Duration
}

// Do is what a client does once; i counts, from 0, what that client did before.
type Do func(ctx context.Context, client, i int) error

// Repeat lets clients do something over and over, as fast as they can, for a duration: what was begun in time is
// finished, and counts, and so does the first of each client. The first that fails ends it for all, with its error.
func Repeat(ctx context.Context, clients int, duration time.Duration, do Do) (Load, error) {
	return run(ctx, clients, func(begun time.Time, i int) (time.Time, bool) {
		before := time.Now()
		return before, i == 0 || before.Sub(begun) <= duration
	}, do)
}

// RepeatAtRate lets clients do something so many times a second, evenly spaced, whether or not earlier ones are
// finished; each client takes the next that is due when it is free. A latency runs from the moment at which it was due,
// so that what had to wait for a free client counts with its wait: no slow moment hides the requests that it held up
// (coordinated omission, as G. Tene named it). Where a client was free in time, the latency runs from its waking up:
// how late the load's own timer is says nothing of the target.
func RepeatAtRate(ctx context.Context, clients int, perSecond float64, duration time.Duration, do Do) (Load, error) {
	if perSecond <= 0 {
		return Load{}, fmt.Errorf("a rate of %g a second", perSecond)
	}
	var taken atomic.Int64
	interval := float64(time.Second) / perSecond
	return run(ctx, clients, func(begun time.Time, _ int) (time.Time, bool) {
		due := begun.Add(time.Duration(float64(taken.Add(1)-1) * interval))
		if due.Sub(begun) > duration {
			return due, false
		}
		if early := time.Until(due); early > 0 {
			time.Sleep(early)
			due = time.Now()
		}
		return due, true
	}, do)
}

// run lets clients take turns until there are no more. A client's turn i begins at the time that next returns.
func run(ctx context.Context, clients int, next func(begun time.Time, i int) (time.Time, bool), do Do) (Load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([][]time.Duration, clients)
	begun := time.Now()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			latencies[client] = make([]time.Duration, 0, 1<<12)
			for i := 0; ctx.Err() == nil; i++ {
				from, more := next(begun, i)
				if !more {
					return
				}
				if err := do(ctx, client, i); err != nil {
					cancel(fmt.Errorf("client %d: %w", client, err))
					return
				}
				latencies[client] = append(latencies[client], time.Since(from))
			}
		})
	}
	running.Wait()
	load := Load{Latencies: slices.Concat(latencies...), Took: time.Since(begun)}
	slices.Sort(load.Latencies)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return Load{}, err
	}
	return load, ctx.Err()
}

//go:embed preload/slowflush.c
var slowFlush string

// slowPrograms makes a directory with PostgreSQL's programs, which it returns: initdb as it is, and a postgres whose
// every flush takes longer by the delay, as on a disk across a network, or behind a synchronous standby. It needs Linux
// and a C compiler, $CC or cc, and returns peers.ErrAbsent where they are not.
func slowPrograms(ctx context.Context, dir string, delay time.Duration) (string, error) {
	binaries, err := embeddedpg.FindBinaries()
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(dir+binaries.Dir, "'\n") {
		return "", fmt.Errorf("can't name %q and %q in a script", dir, binaries.Dir)
	}
	compiler, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil || runtime.GOOS != "linux" {
		return "", fmt.Errorf("a C compiler (cc) on Linux, to slow flushes down: %w", peers.ErrAbsent)
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // PostgreSQL's user runs what is in it
		return "", err
	}
	library := filepath.Join(dir, "slowflush.so")
	args := []string{"-shared", "-fPIC", "-O2", "-Wall", "-o", library, "-x", "c", "-", "-ldl"}
	cmd := exec.CommandContext(ctx, compiler, args...) //nolint:gosec // $CC is chosen by the user of this program
	cmd.Stdin = strings.NewReader(slowFlush)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile what slows flushes down: %w\n%s", err, output)
	}
	preload := fmt.Sprintf("export LD_PRELOAD='%s' FENCEGATE_FLUSH_DELAY_US=%d\n", library, delay.Microseconds())
	for program, before := range map[string]string{"postgres": preload, "initdb": ""} {
		script := fmt.Sprintf("#!/bin/sh\n%sexec '%s/%s' \"$@\"\n", before, binaries.Dir, program)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755)) //nolint:gosec // see above
	}
	return dir, err
}
