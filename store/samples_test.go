package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	waiting "github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/store"
)

// keep keeps a sample, and has it taken the given time ago: a sample is in a point when its interval is over.
func (b *testbed) keep(t *testing.T, state store.GatewayState, ago time.Duration, totals store.Totals) {
	t.Helper()
	at, err := b.KeepSample(t.Context(), state, 3*time.Second, totals)
	if err != nil {
		t.Fatal(err)
	}
	b.Exec(t, "update fence.samples set at = at - $1::interval where at = $2 and gateway_id = $3", ago, at, state.ID)
}

func (b *testbed) points(t *testing.T, length time.Duration) []store.Point {
	t.Helper()
	points, err := b.Points(t.Context(), length)
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// sumOf makes one point of many, of writes instead of writes per second.
func sumOf(points []store.Point, step time.Duration) store.Point {
	sum := store.Point{Rejected: map[store.Verdict]float64{}, Kinds: map[store.RejectionKind]float64{}}
	for _, point := range points {
		sum.Accepted += point.Accepted * step.Seconds()
		sum.Failed += point.Failed * step.Seconds()
		for code, perS := range point.Rejected {
			sum.Rejected[code] += perS * step.Seconds()
		}
		for kind, perS := range point.Kinds {
			sum.Kinds[kind] += perS * step.Seconds()
		}
		for i, writes := range point.Took {
			sum.Took[i] += writes
		}
	}
	return sum
}

// TestSamplesAddUpToTheTotals checks that the points of a gateway add up to its totals, also if totals were sent twice
// or samples are missing.
func TestSamplesAddUpToTheTotals(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	left, right := store.GatewayState{ID: uuid.New(), Name: "left"}, store.GatewayState{ID: uuid.New(), Name: "right"}
	zombies := store.RejectionClass{Verdict: store.VerdictTokenStale, Kind: store.KindZombie}
	reused := store.RejectionClass{Verdict: store.VerdictTokenStale, Kind: store.KindNumbering}
	first := store.Totals{Accepted: 10, Failed: 1, Rejected: map[store.RejectionClass]int64{zombies: 3,
		{Verdict: store.VerdictTokenUnknown, Kind: store.KindMisuse}: 0}}
	first.Took[4], first.Took[34] = 9, 1
	second := store.Totals{Accepted: 17, Failed: 1, Rejected: map[store.RejectionClass]int64{zombies: 3, reused: 4,
		{Verdict: store.VerdictTokenRequired, Kind: store.KindMisuse}: 2}}
	second.Took[4], second.Took[34] = 15, 2
	// the answer to the first was lost: it is sent again
	for i, totals := range []store.Totals{{}, first, first, second, second} {
		b.keep(t, left, time.Duration(40-2*i)*time.Second, totals)
	}
	b.keep(t, right, 20*time.Second, first)
	sum := sumOf(b.points(t, time.Minute), 2*time.Second)
	want := store.Point{Accepted: 27, Failed: 2, Rejected: map[store.Verdict]float64{store.VerdictTokenStale: 10,
		store.VerdictTokenRequired: 2}, Kinds: map[store.RejectionKind]float64{store.KindZombie: 6, store.KindNumbering: 4,
		store.KindMisuse: 2}}
	want.Took[4], want.Took[34] = 24, 3
	if sum.Accepted != want.Accepted || sum.Failed != want.Failed || !maps.Equal(sum.Rejected, want.Rejected) ||
		!maps.Equal(sum.Kinds, want.Kinds) ||
		sum.Took != want.Took {
		t.Errorf("the points add up to\n%+v, want\n%+v", sum, want)
	}
	expectSQL(t, b, 3, "select count(*) from fence.samples where accepted = 0 and rejected = '{}' and failed = 0")
}

// TestPoints checks that a step without a sample is not shown as one without writes, that a late sample makes no peak,
// and that no step is counted twice.
func TestPoints(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	var points []store.Point
	var point store.Point
	// Samples and points must be of one step of two seconds: the next one has other samples.
	step := func() string {
		return valueOf[string](t, b, "select date_bin('2 seconds', clock_timestamp(), 'epoch')::text")
	}
	waiting.True(t, "the points are those of the samples' step", func() bool {
		begun := step()
		b.Exec(t, "truncate fence.samples")
		b.Exec(t, `
			insert into fence.samples (gateway_id, at, span_ms, accepted, rejected, failed, durations)
			select gen_random_uuid(), date_bin('2 seconds', clock_timestamp(), 'epoch') - ago * interval '1 second', span_ms,
				accepted, rejected::jsonb, 0, durations
			from (values
				(2, 2000, 6, '{"token_stale": 4}', array_fill(0::bigint, array[35])),
				(2, 2000, 2, '{"token_stale": 1, "lease_expired": 1}', array_fill(0::bigint, array[35])),
				(3, 1500, 4, '{}', array_fill(1::bigint, array[35])),
				(9, 30000, 300, '{"token_stale": 30}', array_fill(0::bigint, array[35])),
				(0, 2000, 1000, '{}', array_fill(0::bigint, array[35])),
				(601, 2000, 1000, '{}', array_fill(0::bigint, array[35]))
			) as given (ago, span_ms, accepted, rejected, durations)`)
		points = b.points(t, 10*time.Minute)
		var err error
		point, err = b.LastPoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return step() == begun
	})
	if len(points) != 150 {
		t.Fatalf("there are %d points", len(points))
	}
	for i, point := range points {
		if i > 0 && point.At.Sub(points[i-1].At) != 4*time.Second {
			t.Errorf("after %s comes %s", points[i-1].At, point.At)
		}
		if fromEnd := len(points) - i; point.Sampled != (fromEnd == 1 || fromEnd == 3) {
			t.Errorf("point %d from the end is %+v", fromEnd, point)
		}
	}
	last, late := points[149], points[147]
	if last.Accepted != 3 || !maps.Equal(last.Rejected, map[store.Verdict]float64{store.VerdictTokenStale: 1.25,
		store.VerdictLeaseExpired: .25}) {
		t.Errorf("the last point is %+v", last)
	}
	if took, some := last.Took.Quantile(.5); !some || took < time.Millisecond || took > 100*time.Millisecond {
		t.Errorf("half of them took %s (%v)", took, some)
	}
	if late.Accepted != 10 || late.Rejected[store.VerdictTokenStale] != 1 {
		t.Errorf("the late point is %+v", late)
	}
	if _, some := late.Took.Quantile(.5); some {
		t.Error("something took a time where nothing was written")
	}
	if point.Accepted != 4 || point.At != last.At.Add(2*time.Second) {
		t.Errorf("the point of the last two seconds is %+v, of four %+v", point, last)
	}
	for _, length := range []time.Duration{0, -time.Minute, time.Minute - 1, 24*time.Hour + 1} {
		if _, err := b.Points(t.Context(), length); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("points of %s: %v", length, err)
		}
	}
}

// TestHistoryStep checks the step between the points of a history, by its length.
func TestHistoryStep(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{
		time.Minute: 2 * time.Second, 5 * time.Minute: 2 * time.Second, 5*time.Minute + 1: 4 * time.Second,
		time.Hour:      24 * time.Second,
		24 * time.Hour: 576 * time.Second,
	} {
		if got := store.HistoryStep(length); got != want {
			t.Errorf("the step of %s is %s, want %s", length, got, want)
		}
	}
}

// TestQuantile checks quantiles of write times.
func TestQuantile(t *testing.T) {
	if bounds := store.WriteTimeBounds; bounds[0] != 1e-4 || bounds[2] != 2e-4 || bounds[33] < 9 || bounds[33] > 10 {
		t.Errorf("the bounds are %v", bounds)
	}
	one := func(class int, writes int64) (took store.WriteTimes) {
		took[class] = writes
		return took
	}
	bounds := store.WriteTimeBounds
	both := one(0, 10)
	both[34] = 10
	for _, c := range []struct {
		name string
		took store.WriteTimes
		q    float64
		want float64 // seconds
	}{
		{"in the middle of the first class", one(0, 10), .5, bounds[0] / 2},
		{"at its end", one(0, 10), 1, bounds[0]},
		{"in another class", one(7, 4), .25, bounds[6] + (bounds[7]-bounds[6])/4},
		{"of one", one(7, 1), .99, bounds[6] + (bounds[7]-bounds[6])*.99},
		{"above all", one(34, 3), .5, bounds[33]},
		{"at the end of the lower of two", both, .5, bounds[0]},
		{"in the upper of two", both, .51, bounds[33]},
	} {
		got, some := c.took.Quantile(c.q)
		if !some || math.Abs(got.Seconds()-c.want) > 1e-8 {
			t.Errorf("%s: %s (%v), want %v s", c.name, got, some, c.want)
		}
	}
	if got, some := new(store.WriteTimes).Quantile(.5); some || got != 0 {
		t.Errorf("of none: %s (%v)", got, some)
	}
}

// TestGatewaysOfTheOverview checks that a gateway that has not sampled for a while is silent, and that one that has
// ended is gone.
func TestGatewaysOfTheOverview(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	states := map[string]store.GatewayState{}
	for i, name := range []string{"c", "a", "b"} {
		states[name] = store.GatewayState{
			ID: uuid.New(), Name: name, Version: "v", Waiting: int64(i), Streams: 2, Queue: 3, ConnectionsBusy: 4,
			ConnectionsMax: 5, Listening: i > 0,
		}
		b.keep(t, states[name], 0, store.Totals{})
	}
	b.Exec(t, "update fence.gateway_states set seen_at = seen_at - interval '8 seconds' where name = 'a'")
	if err := b.ForgetGateway(t.Context(), states["b"].ID); err != nil {
		t.Fatal(err)
	}
	overview, err := b.Overview(t.Context())
	if err != nil || len(overview.Gateways) != 2 {
		t.Fatalf("the gateways are %+v (%v)", overview.Gateways, err)
	}
	for i, name := range []string{"a", "c"} {
		got := overview.Gateways[i]
		want := states[name]
		want.StartedAt, want.SeenAt, want.Silent = got.StartedAt, got.SeenAt, name == "a"
		if got != want || (name == "c" && got.SeenAt.Sub(got.StartedAt) != 3*time.Second) {
			t.Errorf("gateway %s is %+v, want %+v", name, got, want)
		}
	}
}

// TestSweepForgetsSamples checks that the sweep deletes old samples, however many, and gateways that have been silent
// for as long.
func TestSweepForgetsSamples(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	state := store.GatewayState{ID: uuid.New(), Name: "dead"}
	b.keep(t, state, 0, store.Totals{Accepted: 1})
	b.Exec(t, `
		insert into fence.samples (gateway_id, at, span_ms, accepted, rejected, failed, durations)
		select gen_random_uuid(), clock_timestamp() - n * interval '1 second', 1, 1, '{}', 0, '{}' from generate_series(3610, 6109) n`)
	b.Exec(t, "update fence.gateway_states set seen_at = seen_at - interval '1 hour'")
	sweeper := newSweeper(t, b.Store, store.SweeperConfig{HistoryRetention: time.Hour})
	expectSwept(t, sweeper, store.Swept{SamplesForgotten: 2500})
	expectSwept(t, sweeper, store.Swept{})
	overview, err := b.Overview(t.Context())
	samples := b.Count(t, "select count(*) from fence.samples")
	if err != nil || len(overview.Gateways) != 0 || samples != 1 {
		t.Errorf("%d samples and the gateways %+v are left (%v)", samples, overview.Gateways, err)
	}
	for _, retention := range []time.Duration{time.Second, -1, 721 * time.Hour} {
		if _, err := store.NewSweeper(b.Store, store.SweeperConfig{HistoryRetention: retention}); !errors.Is(err,
			store.ErrInvalid) {
			t.Errorf("a retention of %s: %v", retention, err)
		}
	}
}

// TestOverviewOfAReadOnlyDatabase checks that the overview of a read-only database says so.
func TestOverviewOfAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	alterDatabase(t, b, "default_transaction_read_only = on")
	reader := openStore(t, store.Config{DatabaseURL: b.URL})
	overview, err := reader.Overview(t.Context())
	if err != nil || !overview.Database.ReadOnly || overview.Database.Version == "" ||
		overview.Database.ConnectionsMax < 1 {
		t.Errorf("the overview is %+v (%v)", overview, err)
	}
	if _, err := reader.KeepSample(t.Context(), store.GatewayState{ID: uuid.New()}, 0, store.Totals{}); !errors.Is(err,
		store.ErrUnavailable) {
		t.Errorf("a sample was kept: %v", err)
	}
	if _, err := reader.Recount(context.WithoutCancel(t.Context())); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("it was counted: %v", err)
	}
}

// TestOverviewOfARoleThatSeesLittle checks that a role that may not see other transactions and replication gets no
// wrong numbers.
func TestOverviewOfARoleThatSeesLittle(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	role := valueOf[string](t, b, "select current_database() || '_onlooker'")
	b.Exec(t, "create role "+role)
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + role, "drop role " + role} {
			if _, err := b.SQL.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	b.Exec(t, fmt.Sprintf("grant usage on schema fence to %[1]s; grant select on all tables in schema fence to %[1]s;"+
		"grant execute on function fence.rejected_by_sql, fence.lineage, fence.running_database, fence.running_timeline to %[1]s; "+
		"grant select on all sequences in schema fence to %[1]s", role))
	separator := "?"
	if strings.Contains(b.URL, "?") {
		separator = "&"
	}
	overview, err := openStore(t, store.Config{DatabaseURL: b.URL + separator + "options=-crole%3D" +
		role}).Overview(t.Context())
	if err != nil || overview.Database.SynchronousStandbys != nil || overview.Database.SizeBytes < 1<<20 ||
		overview.Database.Connections < 1 {
		t.Errorf("a role that sees little gets %+v (%v)", overview.Database, err)
	}
	if overview, err = b.Overview(t.Context()); err != nil || overview.Database.SynchronousStandbys == nil {
		t.Errorf("a role that sees everything gets %+v (%v)", overview.Database, err)
	}
}
