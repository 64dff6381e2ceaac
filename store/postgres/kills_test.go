package postgres_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
)

var (
	killsFile = flag.String("kills.file", "", "the file in which TestKills lists what notices each broken function")
	killsFor  = flag.Duration("kills.for", 4*time.Second, "how long TestKills lets each driver look for one")
)

// TestKills breaks the functions as TestEveryStepIsTested does, and lists which driver of the specification notices each by
// itself, without a case that was written for it; or else the case.
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
		client := drive.NewSQL(t, bed.URL, bed.Store)
		bySQL, calls := target, client.Calls()
		bySQL.Service = client
		if err := errors.Join(search(t, target, randomCalls, 0), search(t, bySQL, calls, -1)); err != nil {
			t.Fatalf("a driver finds the functions wrong as they are: %v", err)
		}
		working.Go(func() {
			for i := range next {
				m := mutations[i]
				m.apply(t, bed)
				by := "case " + strconv.Quote(m.fails[0])
				switch {
				case search(t, target, randomCalls, i+1) != nil:
					by = "random calls"
				case search(t, bySQL, calls, -2-i) != nil:
					by = "random SQL clients"
				}
				m.undo(t, bed)
				lines[i] = fmt.Sprintf("fence.%s: %s: %s\n", m.function, m.name, by)
			}
			bed.Exec(t, "delete from fence.leases") // some of which broken functions have ended late
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

func search(t *testing.T, target drive.Store, calls spec.Generator, seed int) error {
	t.Helper()
	return drive.Search(t.Context(), target, calls, uint64(seed), *killsFor)
}
