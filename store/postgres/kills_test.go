package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec/drive"
)

var (
	killsFile = flag.String("kills.file", "", "the file in which TestKills lists what the random driver notices")
	killsFor  = flag.Duration("kills.for", 10*time.Second, "how long TestKills lets the driver look for each mutation")
)

// TestKills breaks the functions as TestEveryStepIsTested does, and lists which of the mutations random sequences notice
// by themselves, without a case that was written for them.
func TestKills(t *testing.T) {
	if *killsFile == "" {
		t.Skip("without -kills.file there is nothing to list")
	}
	mutations := allMutations()
	lines := make([]string, len(mutations))
	var working sync.WaitGroup
	next := make(chan int)
	for range 2 {
		target, bed := newRandomTarget(t)
		working.Go(func() {
			for i := range next {
				m := mutations[i]
				m.apply(t, bed)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), *killsFor)
				err := drive.Search(ctx, target, randomCalls, uint64(i))
				cancel()
				m.undo(t, bed)
				found := "-"
				if err != nil {
					first, _, _ := strings.Cut(err.Error(), "\n")
					found = fmt.Sprintf("random sequences, %.1f s: %s", time.Since(began).Seconds(), first)
				}
				lines[i] = fmt.Sprintf("fence.%s: %s: %s\n", m.function, m.name, found)
			}
		})
	}
	for i := range mutations {
		next <- i
	}
	close(next)
	working.Wait()
	if err := os.WriteFile(*killsFile, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}
