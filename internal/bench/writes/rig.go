//go:build unix

package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/internal/bench/floor"
	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/store"
)

// connectionsReserved are for all else than the target that is measured: the store and the gateway, which keep theirs,
// and this process.
const connectionsReserved = 16

// open starts everything that the targets need. Whatever fails, close ends what was started.
func open(ctx context.Context, config Config, report *Report) (r *rig, err error) {
	r = &rig{config: config, report: report}
	if r.control, err = openPool(ctx, config.DatabaseURL, controlConnections); err != nil {
		return r, err
	}
	r.onClose(closing(r.control))
	if report.Environment, err = bench.ReadEnvironment(ctx, r.control); err != nil {
		return r, err
	}
	connectionsMax, err := strconv.Atoi(report.PostgreSQL["max_connections"])
	if err != nil {
		return r, fmt.Errorf("max_connections: %w", err)
	}
	r.connectionsMax = max(1, connectionsMax-2*config.Connections-connectionsReserved)
	report.ConnectionsMax = r.connectionsMax

	r.storeConfig = store.Config{DatabaseURL: config.DatabaseURL, ConnectionsMax: config.Connections}
	if r.st, err = store.Open(ctx, r.storeConfig); err != nil {
		return r, err
	}
	r.onClose(func() error {
		r.st.Close()
		return nil
	})
	if err := r.st.Migrate(ctx); err != nil {
		return r, err
	}
	if err := prepareTables(ctx, r.control); err != nil {
		return r, err
	}
	r.onClose(func() error {
		_, err := r.control.Exec(context.WithoutCancel(ctx), "drop schema fencegate_bench cascade")
		return err
	})
	if err := r.startGateway(ctx); err != nil {
		return r, err
	}
	if err := r.acquire(ctx); err != nil {
		return r, err
	}
	err = r.openTargets(ctx)
	return r, err
}

// startGateway runs a gateway unless one was named.
func (r *rig) startGateway(ctx context.Context) error {
	r.gatewayURL = r.config.GatewayURL
	if r.gatewayURL != "" {
		return nil
	}
	gateway, err := r.start(ctx)
	if err != nil {
		return err
	}
	r.gatewayURL, r.gatewayPIDs = gateway.URL, []int{gateway.PID()}
	return nil
}

// start runs a gateway until the rig is closed.
func (r *rig) start(ctx context.Context, flags ...string) (*gateway.Process, error) {
	gateway, err := gateway.Run(ctx, r.config.Program, append([]string{
		"--database-url", r.config.DatabaseURL, "--database-connections-max", strconv.Itoa(r.config.Connections),
		"--log-level", "error",
		"--caller-requests-max", "0", // all load comes from one address, and a fast machine takes more than the default
	}, flags...)...)
	if err == nil {
		r.onClose(gateway.Stop)
	}
	return gateway, err
}

// undelayed is the target of zombies whose answers are not delayed: a gateway beside the one that is measured, unless
// that was named.
func (r *rig) undelayed(ctx context.Context) (target, error) {
	if r.config.GatewayURL != "" {
		return refusedTarget(r.gatewayURL, nil), nil
	}
	gateway, err := r.start(ctx, "--refusal-delay-max", "0s")
	if err != nil {
		return target{}, err
	}
	return refusedTarget(gateway.URL, []int{gateway.PID()}), nil
}

// acquire takes the leases.
func (r *rig) acquire(ctx context.Context) error {
	r.run = fmt.Sprintf("bench/%d", time.Now().UnixNano())
	for _, of := range []struct {
		name  string
		count int
	}{{"many", r.config.Resources}, {"hot", r.config.Hot}} {
		if of.count == 0 {
			continue
		}
		r.config.progress("acquiring %d leases", of.count)
		l, err := acquireLayout(ctx, r.acquireOne, store.Name(r.run+"/"+of.name), of.count, r.config.Connections)
		if err != nil {
			return err
		}
		r.layouts = append(r.layouts, l)
	}
	return nil
}

// openTargets makes the targets that take part, in the order of TargetNames. What is not on this machine is noted in
// the report.
func (r *rig) openTargets(ctx context.Context) error {
	for _, name := range TargetNames() {
		if !r.config.wants(name) {
			continue
		}
		t, version, err := r.openTarget(ctx, name)
		if errors.Is(err, peers.ErrAbsent) {
			r.report.Skipped[name] = err.Error()
			r.config.progress("skipped: %s: %s", name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if t.stop != nil {
			r.onClose(t.stop)
		}
		if version != "" {
			r.report.Peers[name] = version
		}
		r.targets = append(r.targets, t)
	}
	if !r.config.wants(nameHTTP) {
		return nil
	}
	for _, count := range r.config.Gateways {
		if err := r.addFleet(ctx, count); err != nil {
			return err
		}
	}
	return nil
}

func fleetName(gateways int) string { return fmt.Sprintf("%s x%d", nameHTTP, gateways) }

// addFleet adds the target of single writes through so many gateways, of which one runs already.
func (r *rig) addFleet(ctx context.Context, count int) error {
	t := target{name: fleetName(count), role: roleGateway, pids: slices.Clone(r.gatewayPIDs)}
	for range count - 1 {
		gateway, err := r.start(ctx)
		if err != nil {
			return err
		}
		t.beside, t.pids = append(t.beside, gateway.URL), append(t.pids, gateway.PID())
	}
	r.targets = append(r.targets, t.overWires(r.gatewayURL, r.st, putting))
	return nil
}

func (r *rig) openTarget(ctx context.Context, name string) (t target, version string, err error) {
	switch name {
	case nameDirect:
		return directTarget(r.config.DatabaseURL), "", nil
	case nameHandmade:
		return handmadeTarget(r.config.DatabaseURL), "", nil
	case nameStore:
		return storeTarget(r.storeConfig), "", nil
	case nameStoreUnfenced:
		t, err = openUnfenced(ctx, r.storeConfig)
		return t, "", err
	case nameHTTP:
		return httpTarget(r.gatewayURL, r.gatewayPIDs, r.st), "", nil
	case nameHTTPPooled:
		return r.startPooled(ctx)
	case nameHTTPKey:
		t, err = r.startKeyed(ctx, nameHTTPKey, nil)
		return t, "", err
	case nameHTTPTLS:
		t, err = r.startEncrypted(ctx)
		return t, "", err
	case nameNDJSON:
		return ndjsonTarget(r.gatewayURL, r.gatewayPIDs, r.st), "", nil
	case nameNDJSONStream:
		return streamTarget(r.gatewayURL, r.gatewayPIDs, r.st), "", nil
	case nameFloor:
		t, err = startFloor(ctx, r.config.FloorProgram)
		return t, "", err
	case nameEtcd:
		return startEtcd(ctx)
	case nameZooKeeper:
		return startZooKeeper(ctx)
	case nameRedis:
		return startRedis(ctx, name, "always")
	case nameRedisEverysec:
		return startRedis(ctx, name, "everysec")
	}
	return target{}, "", fmt.Errorf("%w: no target %q", bench.ErrInvalid, name)
}

// startPooled runs PgBouncer in transaction mode, and a gateway behind it.
func (r *rig) startPooled(ctx context.Context) (t target, version string, err error) {
	pooler, err := peers.StartPgBouncer(ctx, r.config.DatabaseURL)
	if err != nil {
		return target{}, "", err
	}
	r.onClose(pooler.Stop)
	gateway, err := r.start(ctx, "--database-url", pooler.URL, "--listen-url", r.config.DatabaseURL)
	if err != nil {
		return target{}, "", err
	}
	t = httpTarget(gateway.URL, []int{gateway.PID(), pooler.PID()}, r.st)
	t.name = nameHTTPPooled
	return t, pooler.Version, nil
}

// startFloor runs the empty handler.
func startFloor(ctx context.Context, program string) (target, error) {
	floor, err := peers.StartProgram(ctx, program, floor.Arguments)
	if err != nil {
		return target{}, err
	}
	t := floorTarget("http://"+floor.Address, []int{floor.PID()})
	t.stop = floor.Stop
	return t, nil
}

// rig is all that runs while something is measured.
type rig struct {
	config         Config
	report         *Report
	run            string // the prefix of all names of this run
	control        *pgxpool.Pool
	connectionsMax int
	storeConfig    store.Config
	st             *store.Store
	gatewayURL     string
	gatewayPIDs    []int
	layouts        []layout
	zombies        layout
	primed         []store.Name // the prefixes of the layouts to whose resources every target has written
	targets        []target
	closers        []func() error
}

// controlConnections are for queries between measurements.
const controlConnections = 4

func (r *rig) onClose(end func() error) { r.closers = append(r.closers, end) }

// close ends everything, what was started last first.
func (r *rig) close() error {
	var errs []error
	for _, end := range slices.Backward(r.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func (r *rig) acquireOne(ctx context.Context, name store.Name) (int64, error) {
	lease, err := r.st.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "bench", TTL: store.TTLMax})
	return lease.Token, err
}
