//go:build unix

package locks

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

func TestLoadIsADifferenceOfReadings(t *testing.T) {
	begun := time.Now()
	before := reading{at: begun, transactions: 100, gateways: bench.CPU{1: 5, 2: 7}, postgres: bench.CPU{10: 1, 11: 1}}
	after := reading{
		at: begun.Add(10 * time.Second), transactions: 150,
		gateways: bench.CPU{1: 5.5, 2: 7.5}, postgres: bench.CPU{10: 2, 12: 3}, // 11 has ended, 12 begun
	}
	got := between(before, after)
	if got.Seconds != 10 || got.TransactionsPerSecond != 5 || got.GatewaysCPU != 0.1 || *got.PostgresCPU != 0.4 {
		t.Errorf("got %+v with %v", got, *got.PostgresCPU)
	}
	after.postgres = nil
	if got := between(before, after); got.PostgresCPU != nil {
		t.Errorf("PostgreSQL elsewhere used %v", *got.PostgresCPU)
	}
}

func TestWorkIsSeen(t *testing.T) {
	if _, err := bench.ProcessStat(os.Getpid()); err != nil {
		t.Skip("there is no /proc: ", err)
	}
	db, err := pgx.Connect(t.Context(), postgres.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	o := observer{db: db, gateways: []int{os.Getpid()}}
	before, err := o.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		for range 1000 {
			if _, err := db.Exec(t.Context(), "select 1"); err != nil {
				t.Fatal(err)
			}
		}
		after, err := o.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		load := between(before, after)
		elsewhere := before.postgres == nil // in a container, or named by FENCEGATE_DATABASE_URL
		if load.TransactionsPerSecond > 0 && load.GatewaysCPU > 0 && (elsewhere || *load.PostgresCPU > 0) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was seen: %+v", load)
		}
	}
	resident, err := residentKiB(o.gateways)
	if err != nil || resident[0] < 1024 {
		t.Errorf("got %v, %v", resident, err)
	}
}

func TestGroupsAreEven(t *testing.T) {
	for waiters, want := range map[int]int{2: 2, 400: 2, 401: 4, 10000: 50, 10001: 52} {
		if got := groupsOf(waiters, 2); got != want {
			t.Errorf("%d waiters: %d groups, want %d", waiters, got, want)
		}
	}
}

func TestOpenFilesCanBeRaisedToTheHardLimit(t *testing.T) {
	low, err := raiseOpenFiles(1)
	if err != nil || low < 1 {
		t.Fatalf("got %d, %v", low, err)
	}
	if again, err := raiseOpenFiles(low); err != nil || again != low {
		t.Errorf("got %d, %v, want %d", again, err, low)
	}
}
