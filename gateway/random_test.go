package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestRandomCalls makes random calls, one after the other, to a gateway: every answer must be that of the specification.
func TestRandomCalls(t *testing.T) {
	// An early refusal shows the fence as it was once.
	h := newGatewayWith(t, Config{}, patientDatabase(t), engine.Config{DeadAfter: time.Minute, RefusalsRememberedMax: -1})
	h.client = serve(t, conforming(t, h.gateway))
	sweeper := enginetest.NewSweeper(t, h.store, postgres.SweeperConfig{})
	service, done, err := load.NewService(h.base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	target := drive.Store{Service: service, InMilliseconds: true, SQL: h.db, Sweep: func(ctx context.Context) error {
		_, err := sweeper.Sweep(ctx)
		return err
	}}
	drive.Sequences(t, target, spec.Generator{
		Names: []store.Name{"a", "b", "b/c", "b/c/d"}, Owners: []string{"A", "B"}, Weights: spec.Sequential,
		TTL: time.Hour, TTLSpread: time.Second, ByVersion: true,
	})
}
