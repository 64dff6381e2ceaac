package gateway

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// knownOverview is the last that the database told.
type knownOverview struct {
	store.Overview

	heard  time.Time // by this process's clock; zero: never
	failed bool      // it was asked after that, and did not answer
}

// age is how long ago it was told.
func (k knownOverview) age() time.Duration {
	if k.heard.IsZero() {
		return math.MaxInt64
	}
	return time.Since(k.heard)
}

// at is the time by the database's clock: what it told, and what has passed since.
func (k knownOverview) at() time.Time {
	if k.heard.IsZero() {
		return time.Now()
	}
	return k.At.Add(time.Since(k.heard))
}

// isUnavailable reports whether err says that the database is away, or can't be asked now.
func isUnavailable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// lookOver asks the database how all is. Where that fails, it returns what was known last, and why.
func (g *Gateway) lookOver(ctx context.Context) (knownOverview, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	overview, err := g.backend.Overview(ctx)
	known := knownOverview{Overview: overview, heard: time.Now()}
	if err != nil {
		known = g.lastOverview()
		known.failed = true
	}
	g.known.Store(&known)
	return known, err
}

func (g *Gateway) lastOverview() knownOverview {
	if known := g.known.Load(); known != nil {
		return *known
	}
	return knownOverview{}
}

// overviewState says what is known; failed is why that is not how it is now.
func (g *Gateway) overviewState(known knownOverview, failed error) api.OverviewState {
	state := api.OverviewState{Gateways: g.gatewaysAnswer(known)}
	if !known.Inventory.At.IsZero() {
		state.Inventory = inventoryAnswer(known.Inventory)
	}
	state.Database = databaseAnswer(known, failed)
	return state
}

func inventoryAnswer(inventory store.Inventory) *api.Inventory {
	return &api.Inventory{
		At: api.Time{Time: inventory.At}, Locks: inventory.Locks, Held: inventory.Held, Expiring: inventory.Expiring, Expired: inventory.Expired,
		Waiting: inventory.Waiting, OldestWaitMS: inventory.OldestWait.Milliseconds(), Sessions: inventory.Sessions,
	}
}

func databaseAnswer(known knownOverview, failed error) api.OverviewDatabase {
	answer := api.OverviewDatabase{State: api.DatabaseOK}
	switch {
	case failed != nil:
		answer.State, answer.Detail = api.DatabaseUnavailable, failureDetail(failed)
	case known.Database.ReadOnly:
		answer.State, answer.Detail = api.DatabaseReadOnly, "It is a standby, or default_transaction_read_only is set: nothing can be written."
	case known.Database.SynchronousStandbys == nil:
		answer.Detail = "The gateway's role does not see other roles' transactions and replication: grant it pg_read_all_stats."
	}
	if known.heard.IsZero() {
		return answer
	}
	d := known.Database
	answer.DatabaseFacts = &api.DatabaseFacts{
		Version: d.Version, SizeBytes: d.SizeBytes, Connections: d.Connections, ConnectionsMax: d.ConnectionsMax,
		OldestTransactionMS: d.OldestTransaction.Milliseconds(), SynchronousExpected: d.SynchronousExpected,
		SynchronousStandbys: d.SynchronousStandbys, Standbys: make([]api.Standby, len(d.Standbys)),
		NewestToken: known.Inventory.NewestToken, Jumps: d.Jumps, LeapedAt: timeAnswer(d.LeapedAt),
	}
	for i, standby := range d.Standbys {
		answer.Standbys[i] = api.Standby{Name: standby.Name, State: standby.State, SyncState: standby.SyncState, LagBytes: standby.LagBytes}
	}
	return answer
}

// failureDetail is what the database's driver said, as /readyz has it.
func failureDetail(err error) string {
	var unavailable *store.UnavailableError
	if errors.As(err, &unavailable) {
		err = unavailable.Err
	}
	return err.Error()
}

// gatewaysAnswer are the gateways that the database knows. This one is among them in any case, as it is now. Of others, who could not tell
// of themselves while the database was away, nothing is known after a while.
func (g *Gateway) gatewaysAnswer(known knownOverview) []api.OverviewGateway {
	self := g.selfState()
	answer := make([]api.OverviewGateway, 0, len(known.Gateways)+1)
	for _, other := range known.Gateways {
		if other.ID == self.ID {
			self.StartedAt, self.SeenAt = other.StartedAt, other.SeenAt
			continue
		}
		other.Silent = other.Silent || known.at().Sub(other.SeenAt) > store.SilentAfter
		answer = append(answer, gatewayAnswer(other, false))
	}
	if self.SeenAt.IsZero() {
		self.SeenAt = known.at()
		self.StartedAt = self.SeenAt.Add(-time.Since(g.started))
	}
	answer = append(answer, gatewayAnswer(self, true))
	slices.SortStableFunc(answer, func(a, b api.OverviewGateway) int {
		if byName := strings.Compare(a.Name, b.Name); byName != 0 {
			return byName
		}
		return a.StartedAt.Compare(b.StartedAt.Time)
	})
	return answer
}

// selfState is how this gateway is now.
func (g *Gateway) selfState() store.GatewayState {
	pool := g.backend.PoolStats()
	return store.GatewayState{
		ID: g.backend.GatewayID(), Name: g.config.Name, Version: g.metrics.version,
		Waiting: int64(g.backend.Waiting()), Streams: g.watching.Load(), Queue: g.backend.GroupStats().Queued,
		ConnectionsBusy: pool.Busy, ConnectionsMax: pool.Max, Listening: g.backend.Listening(),
	}
}

func gatewayAnswer(gateway store.GatewayState, self bool) api.OverviewGateway {
	answer := api.OverviewGateway{
		GatewayID: gateway.ID.String(), Name: gateway.Name, Version: gateway.Version,
		StartedAt: api.Time{Time: gateway.StartedAt}, SeenAt: api.Time{Time: gateway.SeenAt}, State: api.GatewayServing,
		Waiting: gateway.Waiting, Streams: gateway.Streams, Queue: gateway.Queue,
		ConnectionsBusy: gateway.ConnectionsBusy, ConnectionsMax: gateway.ConnectionsMax, Listening: gateway.Listening, Self: self,
	}
	if gateway.Silent {
		answer.State = api.GatewaySilent
	}
	return answer
}
