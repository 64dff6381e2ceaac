package metrics

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Many writes are added at once, to each bucket whose bound they do not exceed.
func TestTalliesCountManyWritesAtOnce(t *testing.T) {
	family := &Family{
		Name: "x", Help: "h", Labels: []Label{{Name: "code", Values: []string{"token_stale"}}}, Buckets: []float64{.5, 1, 2},
	}
	tallies := newTallies(family)
	second, minute := time.Second, time.Minute
	tallies.add(store.VerdictTokenStale, &second, 3) // on a bound
	tallies.add(store.VerdictTokenStale, &minute, 2) // above all bounds
	tallies.add(store.VerdictTokenStale, nil, 7)
	tallies.add(store.VerdictTokenUnknown, &second, 7)
	r := registry{prometheus.NewRegistry()}
	r.onScrape(tallies.show, family)
	shown, err := r.Gather()
	if err != nil || len(shown) != 1 || len(shown[0].GetMetric()) != 1 {
		t.Fatalf("gathered %v, %v; want one series", shown, err)
	}
	got := shown[0].GetMetric()[0].GetHistogram()
	if got.GetSampleCount() != 5 || got.GetSampleSum() != 3*1+2*60 {
		t.Errorf("counted %d writes of %v s, want 5 of together 123 s", got.GetSampleCount(), got.GetSampleSum())
	}
	for i, want := range []uint64{0, 3, 3} {
		if bucket := got.GetBucket()[i]; bucket.GetCumulativeCount() != want {
			t.Errorf("up to %v s are %d writes, want %d", bucket.GetUpperBound(), bucket.GetCumulativeCount(), want)
		}
	}
}

// TestMetricsOfNodes checks that each node of a cluster is shown, and that one which does not answer has no counts.
func TestMetricsOfNodes(t *testing.T) {
	t.Parallel()
	m := New("test", func(error) api.Code { return api.CodeInternal })
	m.WatchDatabase(func() Database {
		return Database{Overview: &store.Overview{Nodes: []store.NodeState{
			{Address: "a:5432", Inventory: store.Inventory{Locks: 5, Held: 3, Waiting: 2}},
			{Address: "b:5432", Failed: store.ErrUnavailable, Inventory: store.Inventory{Locks: 7}},
		}}}
	})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "node" {
					shown[family.GetName()+" "+label.GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
	}
	want := map[string]float64{"fencegate_node_up a:5432": 1, "fencegate_node_up b:5432": 0, "fencegate_node_locks a:5432": 5,
		"fencegate_node_leases a:5432": 3, "fencegate_node_waiters a:5432": 2}
	if !maps.Equal(shown, want) {
		t.Errorf("the nodes are shown as %v, want %v", shown, want)
	}
}

// Requests count under the labels of their route, method and status, whichever of them were seen before.
func TestRouteObserve(t *testing.T) {
	t.Parallel()
	m := New("test", func(error) api.Code { return api.CodeInternal })
	route := m.Route("/v1/x")
	for range 3 {
		for _, status := range []int{200, 201, 412, 503, NoStatus} {
			route.Observe("PUT", status, time.Millisecond)
		}
		route.Observe("DELETE", 405, time.Millisecond)
		route.Observe(OtherMethod, 405, time.Millisecond)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "fencegate_http_request_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := ""
			for _, label := range metric.GetLabel() {
				labels += label.GetValue() + " "
			}
			counts[labels] += metric.GetHistogram().GetSampleCount()
		}
	}
	for _, labels := range []string{
		"PUT /v1/x 200 ", "PUT /v1/x 201 ", "PUT /v1/x 412 ", "PUT /v1/x 503 ", "PUT /v1/x none ", "other /v1/x 405 ",
		"DELETE /v1/x 405 ",
	} {
		if counts[labels] != 3 {
			t.Errorf("%s counts %d requests, want 3; all counts are %v", labels, counts[labels], counts)
		}
	}
}
