package k8slock_test

import (
	"context"
	_ "embed"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/k8slock"
)

// lead runs work whenever this process leads the election, until ctx ends or a term is lost.
func lead(
	ctx context.Context, client *lockclient.Client, identity string, work func(context.Context, *lockclient.Lease),
) {
	lock := k8slock.New(client, "controllers/billing", identity)
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				lease := lock.Lease()
				if ctx.Err() == nil { // otherwise the term is over already
					work(ctx, lease)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
}

//go:embed README.md
var readme string

//go:embed example_test.go
var source string

// testExample runs what the README shows.
func testExample(t *testing.T, url string) {
	_, after, _ := strings.Cut(readme, "```go\n")
	shown, _, _ := strings.Cut(after, "```")
	if shown == "" || !strings.Contains(source, shown) {
		t.Errorf("the README shows code that is not tested:\n%s", shown)
	}
	ctx, end := context.WithCancel(await.Context(t))
	client := newClient(t, url)
	lead(ctx, client, "pod-1", func(ctx context.Context, lease *lockclient.Lease) {
		defer end()
		_, err := lease.Put(ctx, "state", []byte("ready"))
		check(t, err)
	})
	record, err := client.API().Get(t.Context(), "controllers/billing", "state")
	check(t, err)
	if string(record.Value) != "ready" {
		t.Errorf("the record is %q, expected the leader's", record.Value)
	}
}
