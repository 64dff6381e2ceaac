package citus_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestWorkerIsKilled checks that names at the other worker are granted while one is away, and all names when it is
// back.
func TestWorkerIsKilled(t *testing.T) {
	c := newCluster(t)
	gateway := testgateway.StartBroken(t, c.program, "--cluster", "--database-url", c.coordinator.URL())
	defer gateway.Kill()
	// granted is how many of twelve new names are.
	granted := func(label string) (n int) {
		for i := range 12 {
			_, err := gateway.Acquire(await.Context(t), fmt.Sprintf("%d/%s", i, label), api.AcquireRequest{OwnerID: "worker"})
			var problem *api.Problem
			if err == nil {
				n++
			} else if !errors.As(err, &problem) || problem.Code != api.CodeUnavailable {
				t.Error(err)
			}
		}
		return n
	}
	if n := granted("before"); n != 12 {
		t.Errorf("%d of 12 names were granted before", n)
	}
	c.workers[0].Kill()
	if n := granted("away"); n == 0 || n == 12 {
		t.Errorf("%d of 12 names were granted without a worker", n)
	}
	c.workers[0].Restart()
	round := 0
	await.True(t, "all names are granted", func() bool {
		round++
		return granted(fmt.Sprint("back-", round)) == 12
	})
}

// TestWorkerFailsOver checks that the names of a worker are granted again when its standby has taken over, with tokens
// that jumped; that those of the other worker are granted all the while; and that the overview and the check tell.
func TestWorkerFailsOver(t *testing.T) {
	c := newCluster(t)
	gateway := testgateway.StartBroken(t, c.program, "--cluster", "--database-url", c.coordinator.URL())
	defer gateway.Kill()
	client, err := lockclient.New(gateway.URL)
	check(t, err)
	standby := c.workers[0].Standby(settings()...)
	coordinator := connect(t, c.coordinator)
	tenants, tokens := oneAtEach(t, coordinator), map[int64]int64{}
	acquire := func(tenant int64) (int64, error) {
		lease, err := gateway.Acquire(await.Context(t), accountName(tenant), api.AcquireRequest{OwnerID: "worker"})
		if err == nil {
			err = gateway.Release(await.Context(t), accountName(tenant),
				api.ReleaseRequest{OwnerID: "worker", LeaseID: lease.LeaseID, FencingToken: lease.FencingToken})
		}
		return lease.FencingToken, err
	}
	for _, tenant := range tenants {
		token, err := acquire(tenant)
		check(t, err)
		tokens[tenant] = token
	}
	if said := c.run(t, "check"); !strings.Contains(said, "each name has one node") {
		t.Errorf("a sound cluster:\n%s", said)
	}

	standby.CatchUp()
	c.workers[0].Kill()
	said, err := c.try(t, "check")
	if err == nil || !strings.Contains(said, "cluster_node") {
		t.Errorf("without a worker:\n%s", said)
	}
	if away := awayIn(t, admin.New(client)); away != directory(c.workers[0])+":5432" {
		t.Errorf("the overview shows %s as away", away)
	}
	await.True(t, "a metric says so", func() bool {
		return strings.Contains(metricsOf(t, gateway.URL), fmt.Sprintf("fencegate_node_up{node=%q} 0\n", directory(c.workers[0])+":5432"))
	})
	answering := 0
	for _, tenant := range tenants {
		if _, err := acquire(tenant); err == nil {
			answering++
		}
	}
	if answering != 1 {
		t.Errorf("%d of 2 tenants had locks meanwhile, want 1", answering)
	}

	standby.Promote()
	execute(t, standby, fmt.Sprintf("alter system set citus.local_hostname = '%s'", directory(standby)))
	execute(t, standby, "select pg_reload_conf()")
	execute(t, c.coordinator, fmt.Sprintf("select citus_update_node(nodeid, '%s', 5432) from pg_dist_node where nodename = '%s'",
		directory(standby), directory(c.workers[0])))
	jumped := 0
	for _, tenant := range tenants {
		var token int64
		await.True(t, "a lock is granted", func() bool {
			var err error
			token, err = acquire(tenant)
			return err == nil
		})
		if token <= tokens[tenant] {
			t.Errorf("the token %d of tenant %d is not above %d", token, tenant, tokens[tenant])
		}
		if token > tokens[tenant]+1<<32 {
			jumped++
		}
	}
	if jumped != 1 {
		t.Errorf("the tokens of %d nodes jumped, want 1", jumped)
	}
}

// awayIn returns the address of the one node that an overview shows as unavailable.
func awayIn(t *testing.T, client *admin.Client) (address string) {
	t.Helper()
	await.True(t, "the overview shows the node", func() bool {
		overview, err := client.Overview(await.Context(t), 0)
		check(t, err)
		away := 0
		for _, node := range overview.Nodes {
			if node.State == api.DatabaseUnavailable {
				address = node.Address
				away++
			}
		}
		return len(overview.Nodes) == 2 && away == 1
	})
	return address
}

func metricsOf(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(await.Context(t), http.MethodGet, url+"/metrics", nil)
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	return string(text)
}
