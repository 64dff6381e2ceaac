//go:build unix

package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/program"
	"github.com/fencegate/fencegate/lockclient"
)

// TestLoop runs rounds on two gateways. Each round leaves a rejection that both gateways show.
func TestLoop(t *testing.T) {
	t.Parallel()
	url, program := pgtest.Migrated(t), program.Path(t)
	urls := []string{serve(t, program, url).URL, serve(t, program, url).URL}
	events, err := runLoop(t, program, urls, 2)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		var owners []string
		for deadline := time.Now().Add(20 * time.Second); len(owners) < 2 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			rejections, err := client.API().Rejections(t.Context(), lockclient.RejectionsQuery{Code: api.CodeTokenStale})
			if err != nil {
				t.Fatal(err)
			}
			owners = nil
			for _, rejection := range rejections.Rejections {
				owners = append(owners, rejection.Resource)
			}
		}
		if want := []string{"demo/job-3", "demo/job-2"}; !slices.Equal(owners, want) {
			t.Errorf("%s shows rejections on %q, want %q", url, owners, want)
		}
		client.Close()
	}
}

// Loop reports a broken fence at once, and does not confuse it with an unreachable gateway.
func TestLoopReportsABrokenFence(t *testing.T) {
	t.Parallel()
	url, program := pgtest.Migrated(t), program.Path(t)
	gateway := serve(t, program, url)
	breakFence(t, url)
	if _, err := runLoop(t, program, []string{gateway.URL}, 0); !errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("with a fence that admits every token: %v, want ErrUnexpected", err)
	}
	if err := gateway.Stop(); err != nil {
		t.Fatal(err)
	}
	events, err := runLoop(t, program, []string{gateway.URL}, 2)
	if err == nil || errors.Is(err, demo.ErrUnexpected) {
		t.Errorf("without a gateway: %v", err)
	}
	if !slices.ContainsFunc(events, func(event demo.Event) bool { return event.Event == "failed" }) {
		t.Error("without a gateway, no event \"failed\" was printed for the first round")
	}
}

func serve(t *testing.T, program, databaseURL string) *gatewayprocess.Process {
	t.Helper()
	gateway, err := gatewayprocess.Start(t.Context(), program, "--database-url", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gateway.Kill)
	return gateway
}

func runLoop(t *testing.T, program string, urls []string, rounds int) ([]demo.Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := demo.Loop{Program: program, URLs: urls, Every: time.Second, Rounds: rounds, JSON: true, Out: &out}.Run(ctx)
	if ctx.Err() != nil {
		t.Fatal("the rounds took too long")
	}
	var events []demo.Event
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var event demo.Event
		if err := decoder.Decode(&event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	return events, err
}
