//go:build unix

package rig

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// twoRounds is a report in which the machine was half as fast in round 2.
func twoRounds() Report {
	r := Report{Environment: Environment{CPUs: 2, Go: "go1.26", FlushMicroseconds: 120},
		Peers: map[string]string{"etcd": "3.4.23"}, Skipped: map[string]string{"redis": "redis-server: not on this machine"}}
	add := func(target, base string, round int, perSecond, cpu float64) {
		r.Samples = append(r.Samples, Sample{"cycles", "8 clients", target, base, round,
			[]Value{{Name: PerSecond, Of: perSecond}, {PostgresCPU, cpu, true}, {Name: P50, Of: 1.25}}})
	}
	add("fencegate", "etcd", 1, 1000, 300)
	add("etcd", "etcd", 1, 800, 100)
	add("etcd", "etcd", 2, 250, 200)
	add("fencegate", "etcd", 2, 500, 600)
	add("fencegate", "etcd", 3, 7000, 600) // in which etcd failed
	add("redis", "", 1, 12, 0)
	return r
}

func TestTables(t *testing.T) {
	var out strings.Builder
	r := twoRounds()
	goals := []Goal{
		{"met", 1.6, false, r.Ratio("cycles", "8 clients", "fencegate", "etcd", PerSecond)},
		{"missed", 1.6, true, r.Ratio("cycles", "8 clients", "fencegate", "etcd", PerSecond)},
		{"not measured", 1.6, true, r.Ratio("cycles", "9 clients", "fencegate", "etcd", PerSecond)},
	}
	if err := r.WriteText(&out, goals); err != nil {
		t.Fatal(err)
	}
	const want = `2 CPUs, go1.26, PostgreSQL , fsync , synchronous_commit , a flush takes 120 µs
etcd: 3.4.23
skipped: redis: redis-server: not on this machine

cycles

       case     target  per second   (min   max)  to base   (min   max)  PostgreSQL's CPU µs  to base   (min   max)  p50 ms
  8 clients  fencegate        1000   (500  7000)     1.62  (1.25  2.00)                  600     3.00  (3.00  3.00)    1.25
  8 clients       etcd         525   (250   800)     1.00  (1.00  1.00)                  150     1.00  (1.00  1.00)    1.25
  8 clients      redis        12.0  (12.0  12.0)        -     (-     -)                 0.00        -     (-     -)    1.25

Targets that we set ourselves

        target           goal  measured   (min   max)              
           met  at least 1.60      1.62  (1.25  2.00)           met
        missed   at most 1.60      1.62  (1.25  2.00)        missed
  not measured   at most 1.60         -     (-     -)  not measured
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// opened is a rig on a database of its own.
func opened(t *testing.T, pace Pace) *Rig {
	t.Helper()
	r, err := Open(t.Context(), Servers{DatabaseURL: postgres.Empty(t)}, pace, Private{}, io.Discard)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTargetsTakeTurns checks that every round opens each target once, that every other round goes backwards, and that
// a target that fails is noted and left out of later rounds.
func TestTargetsTakeTurns(t *testing.T) {
	r := opened(t, Pace{Rounds: 3, Duration: time.Millisecond})
	var opens []string
	target := func(name string, err error) Target {
		return Target{Name: name, Base: "a", PerCall: 100, Open: func(context.Context, int, int) (Session, error) {
			opens = append(opens, name)
			return Session{func(context.Context, int, int) error { return err }, func() error { return nil }}, nil
		}}
	}
	err := r.Compare(t.Context(), Case{Table: "t", Name: "c", Clients: 1, First: P99},
		[]Target{target("a", nil), target("b", errors.New("broken")), target("c", nil)})
	if err != nil || strings.Join(opens, "") != "abccaac" {
		t.Errorf("opened were %q, %v", opens, err)
	}
	if len(r.Report.Failed) != 1 || !strings.Contains(r.Report.Failed[0], "t, c, b: client 0: broken") ||
		len(r.Report.Samples) != 6 {
		t.Errorf("failed %q, samples %+v", r.Report.Failed, r.Report.Samples)
	}
	for _, s := range r.Report.Samples {
		if s.Values[0].Name != P99 || s.Values[1].Name != PerSecond || s.Values[1].Of < 100/time.Second.Seconds() {
			t.Errorf("got %+v", s)
		}
	}
}

// TestTuning checks that a target gets the number of connections with which it does most, of those that it names below
// the number of clients, and one a client.
func TestTuning(t *testing.T) {
	r := opened(t, Pace{Rounds: 1, Duration: 40 * time.Millisecond})
	var tried []int
	target := Target{Name: "a", Tuned: []int{2, 4, 8}, Open: func(_ context.Context, _, connections int) (Session, error) {
		tried = append(tried, connections)
		return Session{func(context.Context, int, int) error {
			if connections != 4 {
				time.Sleep(5 * time.Millisecond)
			}
			return nil
		}, func() error { return nil }}, nil
	}}
	for range 2 {
		if err := r.Compare(t.Context(), Case{Table: "t", Name: "c", Clients: 6}, []Target{target}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{2, 4, 6, 6, 4, 2, 4, 4}; !slices.Equal(tried, want) {
		t.Errorf("tried were %v, want %v", tried, want)
	}
}
