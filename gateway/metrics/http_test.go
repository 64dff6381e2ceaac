package metrics

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

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
