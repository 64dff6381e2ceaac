//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

// load runs clients at gateways until the test ends. Some come back after their lease, and their writes are rejected.
func load(t *testing.T, gateways ...*gateway) {
	t.Helper()
	var locks []string
	for i := range 8 {
		locks = append(locks, fmt.Sprintf("imports/orders/%02d", i))
	}
	work := journal.New().Exercise(6, locks, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API { return gateways[random.IntN(len(gateways))].API }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { work.Run(ctx, 1) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
