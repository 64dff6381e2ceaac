//go:build unix

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

type soakCmd struct {
	rig.Servers

	Duration time.Duration `help:"How long." default:"30m"`
	Every    time.Duration `help:"Time between two samples." default:"20s"`
	Clients  int           `help:"Clients that contend for locks." default:"24"`
	Locks    int           `help:"Locks that they contend for." default:"128"`
	Names    int           `help:"New names that are locked, written to and released, each second." default:"50"`
	Snapshot time.Duration `help:"How long a snapshot is held open, after a third of the time." default:"1m"`
}

// Validate is called by kong.
func (c soakCmd) Validate() error {
	if c.Every <= 0 || c.Duration < 9*c.Every || c.Snapshot < 0 || c.Snapshot > c.Duration/3 || c.Names < 1 ||
		c.Names > 1000 {
		return errors.New("--duration must be 9 times --every, --snapshot at most a third of it, --names 1 to 1000")
	}
	return nil
}

const soakGateways = 2

// soak is what runs.
type soak struct {
	*rig.Rig
	*soakCmd

	begun   time.Time
	urls    []string
	clients []*lockclient.Client
	samples []map[series]float64
}

// Run soaks. The write-ahead log reaches its size within minutes, and so does what is kept for a time. With Go's
// default of GOGC, gateways' memory shows what is in use, and hardly what has not been collected yet.
func (c *soakCmd) Run(ctx context.Context, to output) (err error) {
	r, err := rig.Open(ctx, c.Servers, rig.Pace{}, rig.Private{Settings: map[string]string{"max_wal_size": "256MB"}},
		to.err)
	defer func() { err = errors.Join(err, r.Close()) }()
	if err != nil {
		return err
	}
	if err := os.Setenv("GOGC", "100"); err != nil {
		return err
	}
	s := &soak{Rig: r, soakCmd: c, begun: time.Now()}
	for i := range soakGateways {
		gateway, err := r.Gateway(ctx, "--database-connections-max", "16", "--gateway-name", gatewayName(i),
			"--lease-retention", "1m", "--rejection-age", "1m")
		if err != nil {
			return err
		}
		client, err := lockclient.New(gateway.URL)
		if err != nil {
			return err
		}
		r.OnEnd(client.Close)
		s.urls, s.clients = append(s.urls, gateway.URL), append(s.clients, client)
	}
	var loaded *load.Report
	work, loading := errgroup.WithContext(ctx)
	running, stop := context.WithTimeout(loading, c.Duration)
	defer stop()
	work.Go(func() (err error) {
		config := load.Config{Clients: c.Clients, Locks: c.Locks, Duration: c.Duration, URLs: s.urls}
		for _, client := range s.clients {
			config.Gateways = append(config.Gateways, client.API())
		}
		loaded, err = load.Run(loading, config)
		return err
	})
	work.Go(func() error { return s.useNewNames(running) })
	work.Go(func() error { return s.holdSnapshot(running) })
	work.Go(func() error { return s.sample(running) })
	if err := errors.Join(work.Wait(), ctx.Err()); err != nil {
		return err
	}
	lines, flat := judge(s.samples)
	title := fmt.Sprintf("medians of the thirds of %d samples; flat: last ≤ middle + %.0f %% + slack", len(s.samples),
		100*growthShare)
	if err := errors.Join(rig.WriteTable(to.out, title, lines), loaded.WriteText(to.out)); err != nil {
		return err
	}
	if !flat || loaded.ViolationsTotal > 0 || loaded.Counts.Unexpected > 0 {
		return errGrew
	}
	return nil
}

var errGrew = errors.New("something grew, or the contract was violated: see the report")

func gatewayName(i int) string { return fmt.Sprintf("gateway-%d", i+1) }

// useNewNames locks, writes to and releases names that were never used before, at the rate of --names, or slower if the
// gateways are.
func (s *soak) useNewNames(ctx context.Context) error {
	tick := time.NewTicker(time.Second / time.Duration(s.Names))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := useName(ctx, s.clients[i%soakGateways].API(), fmt.Sprintf("%s/%d", s.Prefix, i))
		if err != nil && ctx.Err() == nil && !errors.Is(err, lockclient.ErrUnavailable) {
			return fmt.Errorf("new name %d: %w", i, err)
		}
	}
}

func useName(ctx context.Context, gateway *lockclient.API, name string) error {
	lease, err := gateway.Acquire(ctx, name, api.AcquireRequest{OwnerID: "owner of " + name})
	if err != nil {
		return err
	}
	_, err = gateway.Put(ctx, name, benchKey, lockclient.Write{
		Token: api.FencingToken{Token: lease.FencingToken}, ContentType: contentType, Value: []byte("new"),
	})
	if err != nil {
		return err
	}
	return release(ctx, gateway, lease)
}

// holdSnapshot keeps a transaction open that sees the database as it was, so that no later version of a row can be
// removed meanwhile.
func (s *soak) holdSnapshot(ctx context.Context) error {
	if !pause(ctx, s.Duration/3) {
		return nil
	}
	tx, err := s.Control.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select count(*) from fence.fences"); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	s.Progress("a snapshot is held open for %s", s.Snapshot)
	pause(ctx, s.Snapshot)
	return tx.Rollback(context.WithoutCancel(ctx))
}

// series is one thing that is measured, of a gateway, the database, a table or an index.
type series struct{ what, of string }

const (
	growthShare = 0.1 // of the middle third's median: the last third's may be higher by that, and by the slack

	kB = 1 << 10
	mB = 1 << 20
)

// slacks are for what garbage collection, vacuum and checkpoints move up and down. Infinity: only shown.
var slacks = map[string]float64{
	"resident memory": 4 * mB, "Go heap": 2 * mB, "goroutines": 10, "file descriptors": 10, "connections of the pool": 2,
	"connections": 2, "size": 256 * kB, "bytes a name": 16, "leases beside the newest of each lock": 1000,
	"dead rows":       10_000,
	"write-ahead log": 64 * mB, "log written": math.Inf(1), "names": math.Inf(1),
}

// ofGateway are the metrics of a gateway that are measured. Those of one kind are added up.
var ofGateway = map[string]string{
	"process_resident_memory_bytes":                "resident memory",
	"go_memstats_heap_alloc_bytes":                 "Go heap",
	"go_goroutines":                                "goroutines",
	"process_open_fds":                             "file descriptors",
	`fencegate_database_connections{state="busy"}`: "connections of the pool",
	`fencegate_database_connections{state="idle"}`: "connections of the pool",
}

// The relations with a row for each name that is never deleted, the fence, the newest lease and the record, are judged
// by bytes a name.
const soakSQL = `
	with used as (select count(*)::float8 as n from fence.fences)
	select 'names', 'database', n from used
	union all select 'leases beside the newest of each lock', 'database', count(*) - count(distinct lock) from fence.leases
	union all select 'dead rows', 'database', sum(n_dead_tup) from pg_stat_user_tables where schemaname = 'fence'
	union all select 'connections', 'database', count(*) from pg_stat_activity where backend_type = 'client backend'
	union all select 'write-ahead log', 'database', sum(size) from pg_ls_waldir()
	union all select 'log written', 'database', pg_current_wal_lsn() - '0/0'::pg_lsn
	union all select case when name_of_each then 'bytes a name' else 'size' end, relname::text,
		case relkind when 'r' then pg_table_size(c.oid) else pg_relation_size(c.oid) end
			/ case when name_of_each then greatest(n, 1) else 1 end
	from used, pg_class c, lateral (select relname in
		('fences', 'fences_pkey', 'leases', 'leases_pkey', 'records', 'records_pkey') as name_of_each) k
	where relnamespace = 'fence'::regnamespace and relkind in ('r', 'i')`

// sample measures until ctx ends.
func (s *soak) sample(ctx context.Context) error {
	for pause(ctx, s.Every) {
		values := map[series]float64{}
		var err error
		for i, url := range s.urls {
			err = errors.Join(err, addGateway(ctx, values, gatewayName(i), url))
		}
		if err == nil {
			err = addDatabase(ctx, values, s.Control)
		}
		if ctx.Err() != nil {
			break // not a whole sample
		}
		if err != nil {
			return fmt.Errorf("measure: %w", err)
		}
		s.samples = append(s.samples, values)
		text := fmt.Sprintf("%5.0fs", time.Since(s.begun).Seconds())
		for _, at := range sortedSeries(values) {
			if at.what != "size" && at.what != "bytes a name" {
				text += fmt.Sprintf("  %s, %s: %s;", at.of, at.what, rig.Number(values[at]))
			}
		}
		s.Progress("%s", text)
	}
	return nil
}

func addDatabase(ctx context.Context, values map[series]float64, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, soakSQL)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (value float64, err error) {
		var at series
		err = row.Scan(&at.what, &at.of, &value)
		values[at] = value
		return value, err
	})
	return err
}

func addGateway(ctx context.Context, values map[series]float64, name, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		metric, text, _ := strings.Cut(lines.Text(), " ")
		if ofGateway[metric] == "" {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		values[series{ofGateway[metric], name}] += value
	}
	return lines.Err()
}

func sortedSeries[V any](values map[series]V) []series {
	return slices.SortedFunc(maps.Keys(values), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.of, b.of))
	})
}

// judge returns the medians of the thirds and the peak of each series, and whether all are flat.
func judge(samples []map[series]float64) (lines [][]string, flat bool) {
	lines, flat = [][]string{{"what", "of", "first", "middle", "last", "peak", ""}}, true
	values := map[series][]float64{}
	for _, sample := range samples {
		for at, value := range sample {
			values[at] = append(values[at], value)
		}
	}
	for _, at := range sortedSeries(values) {
		of := values[at]
		third := len(of) / 3
		median := func(part []float64) float64 { return rig.SpreadOf(part).Median }
		middle, last := median(of[third:len(of)-third]), median(of[len(of)-third:])
		verdict := "flat"
		if math.IsInf(slacks[at.what], 1) {
			verdict = ""
		} else if last-middle > middle*growthShare+slacks[at.what] {
			verdict, flat = "GREW", false
		}
		lines = append(lines, []string{at.what, at.of, rig.Number(median(of[:third])), rig.Number(middle), rig.Number(last),
			rig.Number(slices.Max(of)), verdict})
	}
	return lines, flat
}
