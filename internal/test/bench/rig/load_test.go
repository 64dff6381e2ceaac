package rig

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpreadOf(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{9, 1, 4}, Spread{4, 1, 9}},
		{[]float64{9, 1, 4, 6}, Spread{5, 1, 9}},
	} {
		if got := SpreadOf(test.values); got != test.want {
			t.Errorf("of %v: got %v, want %v", test.values, got, test.want)
		}
	}
	if none := SpreadOf(nil); !math.IsNaN(none.Median) || !math.IsNaN(none.Low) || !math.IsNaN(none.High) {
		t.Errorf("of nothing: %v", none)
	}
	values := []float64{2, 1}
	if SpreadOf(values); values[0] != 2 {
		t.Error("the values were sorted in place")
	}
}

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1)*time.Millisecond)
	}
	for _, test := range []struct {
		sorted []time.Duration
		p      float64
		want   float64
	}{
		{hundred, 0.50, 50}, {hundred, 0.99, 99}, {hundred, 0, 1}, {hundred, 1, 100},
		{hundred[:2], 0.50, 1}, {hundred[:3], 0.50, 2}, {hundred[:1], 0.99, 1}, {nil, 0.5, 0},
		{[]time.Duration{1234567 * time.Nanosecond}, 0.5, 1.234},
	} {
		if got := Percentile(test.sorted, test.p); got != test.want {
			t.Errorf("%v of %d: got %v, want %v", test.p, len(test.sorted), got, test.want)
		}
	}
}

func TestRepeatCountsCallsBegunInTime(t *testing.T) {
	counts := make([]int, 3)
	load, err := Repeat(t.Context(), 3, 30*time.Millisecond, func(_ context.Context, client, i int) error {
		if i != counts[client] {
			t.Errorf("client %d: number %d follows %d", client, i, counts[client]-1)
		}
		counts[client]++
		time.Sleep(time.Millisecond)
		return nil
	})
	total := counts[0] + counts[1] + counts[2]
	if err != nil || len(load.Latencies) != total || min(counts[0], counts[1], counts[2]) < 1 {
		t.Errorf("%d of %v counted: %v", len(load.Latencies), counts, err)
	}
	if load.Took < 30*time.Millisecond || !slices.IsSorted(load.Latencies) {
		t.Errorf("took %s for %d: %v", load.Took, total, load.Latencies)
	}
}

func TestRepeatEndsWithTheFirstFailure(t *testing.T) {
	errBroken := errors.New("broken")
	_, err := Repeat(t.Context(), 4, time.Hour, func(ctx context.Context, client, _ int) error {
		if client == 2 {
			return errBroken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "client 2: ") {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Repeat(ended, 1, time.Hour, func(context.Context, int, int) error { return nil }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The target is always late: what was due meanwhile counts from when it was due, not from when a client was free.
func TestAtARateWaitingCounts(t *testing.T) {
	const late = 5 * time.Millisecond
	load, err := RepeatAtRate(t.Context(), 1, 1000, 50*time.Millisecond, func(context.Context, int, int) error {
		time.Sleep(late)
		return nil
	})
	// 51 were due, one every millisecond; the last began when 50 others had taken at least 250 ms.
	if err != nil || len(load.Latencies) != 51 || load.Latencies[50] < 51*late-50*time.Millisecond {
		t.Errorf("%d, %v, %v", len(load.Latencies), load.Latencies, err)
	}
	if _, err := RepeatAtRate(t.Context(), 1, 0, time.Second, nil); err == nil {
		t.Errorf("got %v", err)
	}
}

func TestAtARateNothingComesEarly(t *testing.T) {
	begun := time.Now()
	var starts []time.Duration
	_, err := RepeatAtRate(t.Context(), 1, 200, 20*time.Millisecond, func(context.Context, int, int) error {
		starts = append(starts, time.Since(begun))
		return nil
	})
	for i, start := range starts {
		if due := time.Duration(i) * 5 * time.Millisecond; start < due {
			t.Errorf("number %d began after %s, %s before it was due", i, start, due-start)
		}
	}
	if err != nil || len(starts) != 5 {
		t.Errorf("%d, %v", len(starts), err)
	}
}

func TestAFlushTakesTime(t *testing.T) {
	if took, err := flushTime(t.TempDir()); err != nil || took <= 0 {
		t.Errorf("%s, %v", took, err)
	}
}
