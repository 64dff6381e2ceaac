package gateway

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"
)

// Contexts of a shared deadline leave at least the time asked for, and at most a sixteenth more. They end with their
// parent.
func TestSharedDeadline(t *testing.T) {
	t.Parallel()
	const least = 320 * time.Millisecond
	parent, end := context.WithCancel(t.Context())
	var shared sharedDeadline
	shared.within(parent, least)

	begun := time.Now()
	first, again := shared.context(), shared.context()
	deadline, _ := first.Deadline()
	if deadline.Before(begun.Add(least)) || deadline.After(time.Now().Add(least+least/16)) {
		t.Errorf("the first context has %s, want %s or a little more", deadline.Sub(begun), least)
	}
	if next, _ := again.Deadline(); first != again && !next.After(deadline) {
		t.Error("two contexts taken together are different")
	}
	for time.Since(begun) < 2*least {
		now := time.Now()
		deadline, _ := shared.context().Deadline()
		if deadline.Before(now.Add(least)) {
			t.Fatalf("a context taken %s later has %s, want at least %s", now.Sub(begun), deadline.Sub(now), least)
		}
	}
	if <-first.Done(); !errors.Is(context.Cause(first), context.DeadlineExceeded) {
		t.Errorf("the context ended with %v, want DeadlineExceeded", context.Cause(first))
	}
	last := shared.context()
	end()
	if <-last.Done(); !errors.Is(last.Err(), context.Canceled) {
		t.Errorf("the context ended with %v after its parent, want Canceled", last.Err())
	}
}

// TestRouteTimes counts under the right labels, whichever of them were seen before.
func TestRouteTimes(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics("test")
	times := &routeTimes{metrics: metrics, route: "/v1/x", method: "PUT"}
	rest := &routeTimes{metrics: metrics, route: "/v1/x"}
	for range 3 {
		for _, status := range []int{200, 201, 412, 503} {
			times.observe(httptest.NewRequest("PUT", "/v1/x", nil), &answerWriter{status: status}, time.Millisecond)
		}
		times.observe(httptest.NewRequest("PUT", "/v1/x", nil), &answerWriter{status: 200, abandoned: true}, time.Millisecond)
		rest.observe(httptest.NewRequest("PATCH", "/v1/x", nil), &answerWriter{status: 405}, time.Millisecond)
		rest.observe(httptest.NewRequest("DELETE", "/v1/x", nil), &answerWriter{status: 405}, time.Millisecond)
	}
	families, err := metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "fencegate_http_request_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			key := ""
			for _, label := range metric.GetLabel() {
				key += label.GetValue() + " "
			}
			counts[key] += metric.GetHistogram().GetSampleCount()
		}
	}
	for _, labels := range []string{
		"PUT /v1/x 200 ", "PUT /v1/x 201 ", "PUT /v1/x 412 ", "PUT /v1/x 503 ", "PUT /v1/x none ", "other /v1/x 405 ",
		"DELETE /v1/x 405 ",
	} {
		if counts[labels] != 3 {
			t.Errorf("%s: %d of 3 are counted, in all %v", labels, counts[labels], counts)
		}
	}
}
