package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/printable"
)

// labelCells is the width of the labels at the left, figureCells that of the figures before a sparkline.
const (
	labelCells  = 10
	figureCells = 12
)

func label(p painter, text string) string { return p.paint(dim, fit(text, labelCells, false)) }

// figures are the lines above the tables.
func figures(p painter, v View) []string {
	all := append([]string{databaseLine(p, v), inventoryLine(p, v)}, tablesLine(p, v)...)
	return append(append(all, ""), seriesLines(p, v)...)
}

func databaseLine(p painter, v View) string {
	d := v.Overview.Database
	state := p.paint(good, "ok")
	if d.State != api.DatabaseOK {
		state = p.paint(alarm, printable.Text(d.State))
		if d.Detail != "" {
			state += ": " + printable.Text(d.Detail)
		}
	}
	parts := []string{state}
	if f := d.DatabaseFacts; f != nil {
		parts = append(parts, "PostgreSQL "+printable.Text(f.Version), bytesText(f.SizeBytes),
			fmt.Sprintf("%d/%d connections", f.Connections, f.ConnectionsMax), "newest token "+count(f.NewestToken))
		if f.SynchronousExpected && f.SynchronousStandbys != nil && *f.SynchronousStandbys == 0 {
			parts = append(parts, p.paint(alarm, "no synchronous standby"))
		}
	}
	return label(p, "database") + strings.Join(parts, " · ")
}

func inventoryLine(p painter, v View) string {
	c := v.Overview.Inventory
	if c == nil {
		return label(p, "leases") + "not counted yet"
	}
	waiting := fmt.Sprintf("%s waiting", count(c.Waiting))
	if c.Waiting > 0 {
		waiting += ", longest " + span(milliseconds(c.OldestWaitMS))
	}
	parts := []string{
		count(c.Held) + " held", count(c.Expiring) + " expiring", count(c.Expired) + " expired", waiting,
		count(c.Locks) + " locks", count(c.Sessions) + " sessions", gatewaysText(p, v),
	}
	return label(p, "leases") + strings.Join(parts, " · ")
}

// tablesLine is about protected tables and rejections by SQL; none if there are none.
func tablesLine(p painter, v View) []string {
	var parts []string
	if c := v.Overview.Inventory; c != nil && c.TablesEnforce+c.TablesObserve > 0 {
		parts = append(parts, count(c.TablesEnforce)+" enforced", count(c.TablesObserve)+" observed")
		if c.TablesWithProblems > 0 {
			parts = append(parts, p.paint(alarm, count(c.TablesWithProblems)+" with problems"))
		}
	}
	if d := v.Overview.Database.DatabaseFacts; d != nil && len(d.RejectedBySQL) > 0 {
		var codes []string
		total := int64(0)
		mostFirst := func(a, b api.Code) int {
			return cmp.Or(cmp.Compare(d.RejectedBySQL[b], d.RejectedBySQL[a]), cmp.Compare(a, b))
		}
		for _, code := range slices.SortedFunc(maps.Keys(d.RejectedBySQL), mostFirst) {
			codes = append(codes, printable.Text(string(code))+" "+count(d.RejectedBySQL[code]))
			total += d.RejectedBySQL[code]
		}
		parts = append(parts, count(total)+" rejected by SQL: "+strings.Join(codes, ", "))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{label(p, "tables") + strings.Join(parts, " · ")}
}

func gatewaysText(p painter, v View) string {
	serving, silent := 0, 0
	for _, g := range v.Overview.Gateways {
		if g.State == api.GatewayServing {
			serving++
		} else {
			silent++
		}
	}
	text := fmt.Sprintf("%d gateways", serving)
	if serving == 1 {
		text = "1 gateway"
	}
	if silent > 0 {
		text += ", " + p.paint(alarm, fmt.Sprintf("%d silent", silent))
	}
	return text
}

// seriesLines are the writes and rejections, now and over time. The newest whole point counts as now.
func seriesLines(p painter, v View) []string {
	points := v.Overview.Points
	series := func(read func(*api.OverviewRates) float64) []float64 {
		values := make([]float64, len(points))
		for i, point := range points {
			values[i] = math.NaN()
			if point.OverviewRates != nil {
				values[i] = read(point.OverviewRates)
			}
		}
		return values
	}
	line := func(name string, s style, text func(float64) string, read func(*api.OverviewRates) float64,
		more string) string {
		values := series(read)
		figure := "-"
		if now := newest(values); !math.IsNaN(now) {
			figure = text(now)
			if now == 0 {
				s = ""
			}
		}
		room := v.Width - labelCells - figureCells - 2
		if more != "" {
			room -= ansi.StringWidth(more) + 2
			more = "  " + more
		}
		return label(p, name) + p.paint(s, fit(figure, figureCells, true)) + "  " +
			sparkline(values, min(room, sparkCells)) + more
	}
	return []string{
		line("accepted", bold, rate, func(r *api.OverviewRates) float64 { return r.AcceptedPerS }, ""),
		line("rejected", alarm, rate, rejected, byCode(points)),
		line("failed", alarm, rate, func(r *api.OverviewRates) float64 { return r.FailedPerS }, ""),
		line("p50", "", latency, func(r *api.OverviewRates) float64 { return orNaN(r.P50MS) }, ""),
		line("p99", "", latency, func(r *api.OverviewRates) float64 { return orNaN(r.P99MS) }, ""),
	}
}

const sparkCells = 100

func rejected(r *api.OverviewRates) float64 {
	sum := 0.0
	for _, rate := range r.RejectedPerS {
		sum += rate
	}
	return sum
}

// byCode returns the rejections of the newest point, by code.
func byCode(points []api.OverviewPoint) string {
	for _, point := range slices.Backward(points[max(0, len(points)-2):]) {
		if point.OverviewRates == nil {
			continue
		}
		var parts []string
		for _, code := range slices.Sorted(maps.Keys(point.RejectedPerS)) {
			if perSecond := point.RejectedPerS[code]; perSecond > 0 {
				parts = append(parts, printable.Text(string(code))+" "+rate(perSecond))
			}
		}
		return strings.Join(parts, ", ")
	}
	return ""
}

// newest is the last value, or the one before if the last step is still a gap. It is NaN if both are gaps.
func newest(values []float64) float64 {
	for _, value := range slices.Backward(values[max(0, len(values)-2):]) {
		if !math.IsNaN(value) {
			return value
		}
	}
	return math.NaN()
}

func orNaN(value *float64) float64 {
	if value == nil {
		return math.NaN()
	}
	return *value
}

func latency(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return span(time.Duration(ms * float64(time.Millisecond)))
}

func truncate(line string, width int) string {
	if width <= 0 {
		return line
	}
	return ansi.Truncate(line, width, "…")
}
