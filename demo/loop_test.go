package demo_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// TestLoop runs rounds on two gateways. Each round leaves a rejection that both gateways show.
func TestLoop(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	urls := []string{gateway.Serve(t, url).URL, gateway.Serve(t, url).URL}
	events, err := runLoop(t, urls, 2)
	check(t, err)
	var got []string
	for _, event := range events {
		if event.Event == "rejected" || event.Event == "stored" {
			got = append(got, event.Actor+event.Event+event.Value)
		}
	}
	if want := []string{
		"worker-2rejectedthe result of worker-2", "storedthe result of worker-3",
		"worker-3rejectedthe result of worker-3", "storedthe result of worker-4",
	}; !slices.Equal(got, want) {
		t.Errorf("got the events %q, want %q", got, want)
	}
	for _, url := range urls {
		client, err := lockclient.New(url)
		check(t, err)
		var resources []string
		await.True(t, "two rejections are listed", func() bool {
			rejections, err := admin.New(client).Rejections(t.Context(), admin.RejectionsQuery{Code: api.CodeTokenStale})
			check(t, err)
			resources = nil
			for _, rejection := range rejections.Rejections {
				resources = append(resources, rejection.Resource)
			}
			return len(resources) >= 2
		})
		if want := []string{"demo/job-3", "demo/job-2"}; !slices.Equal(resources, want) {
			t.Errorf("%s shows rejections on %q, want %q", url, resources, want)
		}
		client.Close()
	}
}

// Loop reports a broken fence at once, and does not confuse it with an unreachable gateway.
func TestLoopReportsABrokenFence(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	gateway := gateway.Serve(t, url)
	postgres.BreakRule(t, url)
	if _, err := runLoop(t, []string{gateway.URL}, 0); !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("with a fence that admits every token: %v, want ErrUnexpected", err)
	}
	check(t, gateway.Stop())
	events, err := runLoop(t, []string{gateway.URL}, 2)
	if err == nil || errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("without a gateway: %v", err)
	}
	if !slices.ContainsFunc(events, func(event demo.Event) bool { return event.Event == "failed" }) {
		t.Error("without a gateway, no event \"failed\" was printed for the first round")
	}
}

func runLoop(t *testing.T, urls []string, rounds int) ([]demo.Event, error) {
	t.Helper()
	ctx := await.Context(t)
	var out bytes.Buffer
	err := demo.Zombie{Config: demo.Config{
		Program: process.Build(t), Gateways: urls, Every: time.Second, Rounds: rounds, JSON: true, Out: &out,
	}}.Run(ctx)
	if ctx.Err() != nil {
		t.Fatal("the rounds took too long")
	}
	return readEvents(t, &out), err
}
