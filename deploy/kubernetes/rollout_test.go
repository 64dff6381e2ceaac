package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// onDatabase are the objects of a chart with few values.
func onDatabase(url string) map[string]map[string]string {
	return map[string]map[string]string{"fencegate-database": {"url": url}}
}

// awaitRollout waits until all pods are those of the newest manifests, and are available. None may have been restarted.
func (c *cluster) awaitRollout() {
	c.t.Helper()
	await.True(c.t, "the rollout is complete", func() (complete bool) {
		c.locked(func() {
			complete = len(c.pods) == int(*c.spec.Replicas)
			for _, p := range c.pods {
				complete = complete && p.isNew() && c.isAvailable(p)
			}
		})
		return complete
	})
	c.expectStartedOnce(c.all())
}

// ofNewest returns the pods of the newest manifests, or the others.
func (c *cluster) ofNewest(newest bool) (pods []*pod) {
	c.locked(func() {
		for _, p := range c.pods {
			if p.isNew() == newest && !p.isDeleted() {
				pods = append(pods, p)
			}
		}
	})
	return pods
}

// state returns how often the container of a pod was started, and whether its startup probe has succeeded since.
func (c *cluster) state(p *pod) (starts int, started bool) {
	c.locked(func() { starts, started = p.starts, p.started })
	return starts, started
}

// awaitCrashes waits until a container of the newest manifests was started often enough.
func (c *cluster) awaitCrashes(starts int) {
	c.t.Helper()
	await.True(c.t, fmt.Sprintf("the new pod was started %d times", starts), func() bool {
		pods := c.ofNewest(true)
		if len(pods) == 0 {
			return false
		}
		found, _ := c.state(pods[0])
		return found >= starts
	})
}

// expectOld checks that the pods of the former manifests are left, and were not restarted.
func (c *cluster) expectOld(count int) {
	c.t.Helper()
	pods := c.ofNewest(false)
	if len(pods) != count {
		c.t.Errorf("%d pods are left of the former manifests, want %d", len(pods), count)
	}
	c.expectStartedOnce(pods)
}

func (c *cluster) expectStartedOnce(pods []*pod) {
	c.t.Helper()
	for _, p := range pods {
		if starts, _ := c.state(p); starts != 1 {
			c.t.Errorf("the pod at %s was started %d times, want once", p.address, starts)
		}
	}
}

// createKey makes a key as the README does, by a command in a pod, and waits until all pods know it.
func (c *cluster) createKey(client *http.Client) string {
	c.t.Helper()
	output, err := c.all()[0].command("keys", "create", "admin", "--grant", "all:").CombinedOutput()
	check(c.t, err)
	found := regexp.MustCompile(`fgk_\w+`).FindString(string(output))
	if found == "" {
		c.t.Fatalf("keys create wrote %s", output)
	}
	for _, p := range c.all() {
		await.True(c.t, "the pod knows the key", func() bool {
			return statusOf(c.t, client, p.url(), found) == http.StatusOK
		})
	}
	return found
}

// load has clients, which repeat nothing, call the service until stop. It returns the number of calls so far.
func (c *cluster) load(clients int, key string) (calls *atomic.Int64, stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var working sync.WaitGroup
	calls = &atomic.Int64{}
	for n := range clients {
		client, err := lockclient.New("http://"+c.address, lockclient.WithOwner("test"), lockclient.WithToken(key))
		check(c.t, err)
		working.Go(func() {
			defer client.Close()
			if err := callOn(ctx, client.API(), fmt.Sprintf("rollout/%d", n), calls); ctx.Err() == nil {
				c.t.Errorf("after %d calls of all clients: %v", calls.Load(), err)
			}
		})
	}
	return calls, func() {
		cancel()
		working.Wait()
	}
}

// callOn acquires, writes and releases until ctx ends or a call fails.
func callOn(ctx context.Context, calls *lockclient.API, lock string, count *atomic.Int64) error {
	for n := 0; ; n++ {
		lease, err := calls.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "worker", RequestID: new(strconv.Itoa(n))})
		if err != nil {
			return err
		}
		token := api.FencingToken{Token: lease.FencingToken, Sequence: new(int64(1))}
		_, putErr := calls.Put(ctx, lock, "k", lockclient.Write{Token: token, Value: []byte("x")})
		releaseErr := calls.Release(ctx, lock, api.ReleaseRequest{OwnerID: "worker", LeaseID: lease.LeaseID,
			FencingToken: lease.FencingToken})
		if err := errors.Join(putErr, releaseErr); err != nil {
			return err
		}
		count.Add(3)
	}
}

// TestRollout checks that clients, which repeat nothing, see no error while the chart is upgraded to a version that
// crashes after it has migrated the database, rolled back, restarted on the newer schema, and upgraded to a version
// that works; and that none of these restarts a container that works.
func TestRollout(t *testing.T) {
	t.Parallel()
	crashing := gateway.NextVersion(t)
	crashing["cmd/fencegate/serve.go"] = process.Changed(t, "cmd/fencegate/serve.go", map[string]string{
		"		if err == nil {\n			stop = c.runBackground": "		panic(err)\n		if err == nil {\n			stop = c.runBackground"})
	programs := map[string]string{
		"this": process.Build(t), "crashing": process.BuildWith(t, crashing),
		"next": process.BuildWith(t, gateway.NextVersion(t)),
	}
	for _, by := range []string{"job", "gateways"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			database := postgres.Empty(t)
			c := newCluster(t, programs, onDatabase(database))
			values := func(tag, more string) string {
				return fmt.Sprintf("{image: {tag: %s}, migration: {by: %s}, drainDelay: 2s%s}", tag, by, more)
			}
			check(t, c.helm("pre-install", values("this", "")))
			c.awaitRollout()
			calls, stop := c.load(8, c.createKey(http.DefaultClient))
			defer stop()
			begun := time.Now()
			expectService := func(step string) {
				before := calls.Load()
				await.True(t, "clients get on: "+step, func() bool { return calls.Load() > before+300 || t.Failed() })
				t.Logf("%5.1f s  %5d calls  %s", time.Since(begun).Seconds(), calls.Load(), step)
			}
			expectService("installed")

			check(t, c.helm("pre-upgrade", values("crashing", "")))
			c.awaitCrashes(3)
			expectMigrated(t, database)
			c.expectOld(2)
			expectService("a new pod has migrated and crashed three times")

			check(t, c.helm("pre-rollback", values("this", "")))
			c.awaitRollout()
			expectService("rolled back")
			check(t, c.helm("pre-rollback", values("this", ", env: {FENCEGATE_GATEWAY_NAME: another}")))
			c.awaitRollout()
			expectService("pods were replaced on the newer schema")

			check(t, c.helm("pre-upgrade", values("next", "")))
			c.awaitRollout()
			expectService("upgraded")

			// One that crashes once it is ready replaces none, either.
			stop()
			c.locked(func() { c.onReady = func(p *pod) { p.signal(syscall.SIGKILL) } })
			check(t, c.helm("pre-upgrade", values("next", ", env: {FENCEGATE_GATEWAY_NAME: another}")))
			c.awaitCrashes(3)
			c.expectOld(2)
		})
	}
}

func expectMigrated(t *testing.T, database string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var migrated bool
	check(t, conn.QueryRow(t.Context(), "select to_regclass('fence.next') is not null").Scan(&migrated))
	if !migrated {
		t.Error("the crashing version did not migrate the database")
	}
}

// TestDatabaseAway checks that no container is restarted while the database is away, that a pod starts meanwhile, and
// that all are ready again afterwards.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	database := postgres.NewCluster(t)
	c := newCluster(t, map[string]string{"this": process.Build(t)}, onDatabase(database.URL()))
	const values = "{image: {tag: this}, drainDelay: 2s%s}"
	check(t, c.helm("pre-install", fmt.Sprintf(values, "")))
	c.awaitRollout()
	database.Stop()
	check(t, c.helm("pre-rollback", fmt.Sprintf(values, ", env: {FENCEGATE_GATEWAY_NAME: another}")))
	await.True(t, "the new pod has started, without the database", func() bool {
		pods := c.ofNewest(true)
		if len(pods) == 0 {
			return false
		}
		_, started := c.state(pods[0])
		return started
	})
	pods := c.all()
	await.True(t, "no pod is ready, and three liveness probes of each succeed", func() (all bool) {
		all = true
		c.locked(func() {
			for _, p := range pods {
				if !p.readySince.IsZero() {
					p.lives = 0
				}
				all = all && p.readySince.IsZero() && p.lives >= 3
			}
		})
		return all
	})
	if len(pods) != 3 {
		t.Errorf("there are %d pods, want 3: two of before, and a new one that waits", len(pods))
	}
	c.expectStartedOnce(pods)
	database.Restart()
	c.awaitRollout()
}
