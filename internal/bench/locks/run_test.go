//go:build unix

package locks

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// config measures everything in a short time, on a database of its own.
func config(t *testing.T) Config {
	t.Helper()
	return Config{
		Program: process.Build(t), DatabaseURL: postgres.Empty(t), Connections: 4, Measure: []string{WakeUp, Cycles, Leases, Crowd},
		Rounds: 2, Gateways: []int{1, 2},
		HandOffs: 3, Clients: []int{1, 4}, Duration: 50 * time.Millisecond, WarmUp: 10 * time.Millisecond,
		Waiters: 60, Protocol: HTTP2, Idle: 100 * time.Millisecond,
		Progress: func(line string) { t.Log(line) },
	}
}

func TestEverythingIsMeasured(t *testing.T) {
	config := config(t)
	report, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	services := []string{nameFencegate, "fencegate x2", nameEtcd, nameRedis, nameRedisFsync}
	for what, why := range report.Skipped {
		if os.Getenv("CI") == "true" {
			t.Errorf("skipped: %s: %s", what, why)
		}
	}
	got := map[string]int{}
	for _, s := range report.WakeUps {
		if s.HandOffs != 3 || s.P50MS <= 0 || s.P99MS < s.P50MS {
			t.Errorf("%+v", s)
		}
		got["wake-up, "+s.Service]++
	}
	for _, s := range slices.Concat(report.Cycles, report.Leases) {
		if s.Cycles < s.Clients || s.PerSecond <= 0 || s.P50MS <= 0 || s.P99MS < s.P50MS {
			t.Errorf("%+v", s)
		}
		got[fmt.Sprintf("%s, %s, %s, %d", s.Operation, s.Service, s.Locks, s.Clients)]++
	}
	for _, s := range report.Transactions {
		if s.Heartbeats < transactionClients {
			t.Errorf("%+v", s)
		}
		got["transactions, "+s.Service]++
	}
	want := map[string]int{}
	for _, service := range services {
		if _, skipped := report.Skipped[service]; skipped {
			continue
		}
		if service != nameRedis && service != nameRedisFsync {
			want["wake-up, "+service] = 2
		}
		if service != "fencegate x2" {
			want[fmt.Sprintf("cycle, %s, own, 1", service)] = 2
		}
		want[fmt.Sprintf("cycle, %s, own, 4", service)] = 2
		want[fmt.Sprintf("cycle, %s, one, 4", service)] = 2
	}
	_, withoutRedis := report.Skipped[nameRedis]
	wantLeases(want, withoutRedis)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("measured were\n%v, want\n%v", got, want)
	}
	checkCrowds(t, report.Crowds)
	checkGrants(t, config.DatabaseURL)

	var tables bytes.Buffer
	if err := report.WriteTables(&tables); err != nil || strings.Contains(tables.String(), "NaN") {
		t.Errorf("%v\n%s", err, &tables)
	}
	t.Logf("\n%s", &tables)
}

// wantLeases adds what is measured of leases, without Redis only in PostgreSQL.
func wantLeases(want map[string]int, withoutRedis bool) {
	providers := []string{"postgres", "redis", "redlock 3", "redlock 5"}
	libraries := []string{"redsync 1", "redsync 3", nameRedislock}
	if withoutRedis {
		providers, libraries = providers[:1], nil
	}
	var all []string
	for _, provider := range providers {
		all = append(all, provider, provider+" http")
	}
	for _, service := range all {
		want["transactions, "+service] = 1
	}
	for _, service := range append(all, libraries...) {
		for _, operation := range []string{Cycle, Heartbeat} {
			// The cycles of "redis" are also of the bare SET.
			want[fmt.Sprintf("%s, %s, own, 1", operation, service)] += 2
			want[fmt.Sprintf("%s, %s, own, 4", operation, service)] += 2
		}
	}
}

func checkCrowds(t *testing.T, crowds []CrowdSample) {
	t.Helper()
	if len(crowds) != 2 {
		t.Errorf("%d crowds were measured", len(crowds))
	}
	for _, s := range crowds {
		if s.Waiters != 60 || s.Connections != 2 || len(s.KiBPerWaiter) != 2 || s.ResidentKiB[0] <= 0 ||
			s.ResidentKiB[1] <= 0 ||
			s.DrainSeconds <= 0 || s.Idle.Seconds <= 0 || s.Idle.TransactionsPerSecond < 0 || s.OpenFilesMax < 60 {
			t.Errorf("%+v", s)
		}
	}
}

// Every waiter of the crowds, and the holder before them, was granted the lock and released it.
func checkGrants(t *testing.T, databaseURL string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	var grants, owners int
	err = db.QueryRow(t.Context(), `
		select count(*), count(distinct owner_id) from fence.leases
		where lock like 'bench/%/crowd/%' and end_reason = 'released'`).Scan(&grants, &owners)
	if err != nil || grants != 2*61 || owners != 61 {
		t.Errorf("%d grants to %d owners, %v", grants, owners, err)
	}
}
