package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/readiness"
)

// knownOverview is the last overview that the database returned.
type knownOverview struct {
	store.Overview

	read time.Time // by this process's clock; zero: never
}

// at is the time by the database's clock.
func (k knownOverview) at() time.Time {
	if k.read.IsZero() {
		return time.Now()
	}
	return k.At.Add(time.Since(k.read))
}

// lastDatabase is the last overview as metrics show it.
func (g *Gateway) lastDatabase() metrics.Database {
	known := *g.known.Load()
	if known.read.IsZero() {
		return metrics.Database{}
	}
	return metrics.Database{Overview: &known.Overview, Now: known.at()}
}

// leasesOf returns how many leases and sessions a principal had at the last count, and how old that is.
func (g *Gateway) leasesOf(principal string) (leases int64, age time.Duration) {
	known := g.known.Load()
	return known.Inventory.LeasesOf[principal], known.at().Sub(known.Inventory.At)
}

// isUnavailable reports whether err says that the database is unreachable or does not answer in time.
func isUnavailable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// readOverview reads the overview from the database. If that fails, it returns the last known one and the error.
func (g *Gateway) readOverview(ctx context.Context) (knownOverview, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	overview, err := g.service.Overview(ctx)
	known := knownOverview{Overview: overview, read: time.Now()}
	if err != nil {
		return *g.known.Load(), err
	}
	g.history.add(overview, g.service.GatewayID())
	known.Gateways = withoutReplaced(overview.Gateways)
	g.known.Store(&known)
	return known, nil
}

// withoutReplaced leaves out silent gateways of which another one has the name and started later: such a gateway was
// killed, and runs again at its address.
func withoutReplaced(gateways []store.GatewayState) []store.GatewayState {
	left := make([]store.GatewayState, 0, len(gateways))
	for _, gateway := range gateways {
		replaced := gateway.Silent && slices.ContainsFunc(gateways, func(other store.GatewayState) bool {
			return other.ID != gateway.ID && other.Name == gateway.Name && other.StartedAt.After(gateway.SeenAt)
		})
		if !replaced {
			left = append(left, gateway)
		}
	}
	return left
}

// overviewState returns the last known state; failed is the error that kept it from being read now.
func (g *Gateway) overviewState(known knownOverview, failed error) api.OverviewState {
	state := api.OverviewState{Gateways: g.gatewaysAnswer(known), Nodes: endpoint.Convert(known.Nodes, nodeAnswer)}
	if !known.Inventory.At.IsZero() {
		state.Inventory = inventoryAnswer(known.Inventory)
	}
	state.LastMinute = g.history.lastMinute(known.at())
	state.Database, state.Alerts = databaseAnswer(known, failed, g.service.NotReady()), g.alerts.Load()
	return state
}

func inventoryAnswer(inventory store.Inventory) *api.Inventory {
	return &api.Inventory{
		At: api.Time{Time: inventory.At}, Locks: inventory.Locks, Held: inventory.Held, Expiring: inventory.Expiring,
		Expired: inventory.Expired, Waiting: inventory.Waiting, OldestWaitMS: inventory.OldestWait.Milliseconds(),
		Sessions: inventory.Sessions, TablesEnforce: inventory.TablesEnforce, TablesObserve: inventory.TablesObserve,
		TablesWithProblems: inventory.TablesWithProblems,
	}
}

func nodeAnswer(node store.NodeState) api.OverviewNode {
	answer := api.OverviewNode{Name: node.Name, Address: node.Address, State: api.DatabaseOK}
	if node.Failed != nil {
		answer.State, answer.Detail = api.DatabaseUnavailable, failureDetail(node.Failed)
		return answer
	}
	if node.Database.ReadOnly {
		answer.State = api.DatabaseReadOnly
	}
	answer.NodeFacts = &api.NodeFacts{
		Version: node.Database.Version, Connections: node.Database.Connections, ConnectionsMax: node.Database.ConnectionsMax,
		Jumps: node.Database.Jumps, Held: node.Inventory.Held, Waiting: node.Inventory.Waiting, Locks: node.Inventory.Locks,
	}
	return answer
}

func databaseAnswer(known knownOverview, failed error, notReady *readiness.NotReadyError) api.OverviewDatabase {
	answer := api.OverviewDatabase{State: api.DatabaseOK}
	if notReady != nil {
		answer.Reason = string(notReady.Reason)
	}
	switch {
	case failed != nil:
		answer.State, answer.Detail = api.DatabaseUnavailable, failureDetail(failed)
	case known.Database.ReadOnly:
		answer.State = api.DatabaseReadOnly
		answer.Detail = "It is a standby, or default_transaction_read_only is set: nothing can be written."
	case notReady != nil:
		answer.State, answer.Detail = api.DatabaseUnavailable, failureDetail(notReady)
	case known.Database.SynchronousStandbys == nil:
		answer.Detail = "The gateway's role may not see other roles' transactions and replication: " +
			"grant it pg_read_all_stats."
	}
	if known.read.IsZero() {
		return answer
	}
	d := known.Database
	answer.DatabaseFacts = &api.DatabaseFacts{
		Version: d.Version, SizeBytes: d.SizeBytes, Connections: d.Connections, ConnectionsMax: d.ConnectionsMax,
		OldestTransactionMS: d.OldestTransaction.Milliseconds(), SynchronousExpected: d.SynchronousExpected,
		SynchronousStandbys: d.SynchronousStandbys,
		Standbys:            endpoint.Convert(d.Standbys, func(standby store.Standby) api.Standby { return api.Standby(standby) }),
		NewestToken:         known.Inventory.NewestToken, Jumps: d.Jumps, JumpedAt: endpoint.OptionalTime(d.JumpedAt),
		RejectedBySQL: map[api.Code]int64{}, ObservedBySQL: map[api.Code]int64{}, UnlistedBySQL: d.BySQL.Unlisted,
		GuardsBySQL: d.BySQL.Guards,
	}
	for class, rejections := range d.BySQL.Rejected {
		to := answer.RejectedBySQL
		if class.Observed {
			to = answer.ObservedBySQL
		}
		if rejections > 0 {
			to[api.Code(class.Verdict)] += rejections
		}
	}
	return answer
}

// failureDetail is the error of the database's driver, as /readyz shows it.
func failureDetail(err error) string {
	if unavailable, ok := errors.AsType[*store.UnavailableError](err); ok {
		err = unavailable.Err
	}
	return err.Error()
}

// gatewaysAnswer returns the gateways that the database knows, and this one in any case, as it is now. Others become
// silent after a while without the database, since they can't report to it.
func (g *Gateway) gatewaysAnswer(known knownOverview) []api.OverviewGateway {
	self := g.selfState()
	answer := make([]api.OverviewGateway, 0, len(known.Gateways)+1)
	for _, other := range known.Gateways {
		if other.ID == self.ID {
			self.StartedAt, self.SeenAt = other.StartedAt, other.SeenAt
			continue
		}
		if other.Ended {
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
		return cmp.Or(strings.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt.Time))
	})
	return answer
}

// selfState is the current state of this gateway.
func (g *Gateway) selfState() store.GatewayState {
	pool := g.service.PoolStats()
	return store.GatewayState{
		ID: g.service.GatewayID(), Name: g.config.Name, Version: g.Metrics.Version(),
		Waiting: int64(g.service.Waiting()), Streams: g.Streams.Load(), Queue: g.service.GroupStats().Queued,
		ConnectionsBusy: pool.Busy, ConnectionsMax: pool.Max, Listening: g.service.Listening(),
		Draining: g.Leaving.Load(),
	}
}

func gatewayAnswer(gateway store.GatewayState, self bool) api.OverviewGateway {
	answer := api.OverviewGateway{
		GatewayID: gateway.ID.String(), Name: gateway.Name, Version: gateway.Version,
		StartedAt: api.Time{Time: gateway.StartedAt}, SeenAt: api.Time{Time: gateway.SeenAt}, State: api.GatewayServing,
		Waiting: gateway.Waiting, Streams: gateway.Streams, Queue: gateway.Queue,
		ConnectionsBusy: gateway.ConnectionsBusy, ConnectionsMax: gateway.ConnectionsMax,
		Listening: gateway.Listening, Self: self,
	}
	if gateway.Draining {
		answer.State = api.GatewayDraining
	}
	if gateway.Silent {
		answer.State = api.GatewaySilent
	}
	return answer
}
