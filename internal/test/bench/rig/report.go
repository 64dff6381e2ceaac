package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Sample is what one target did in one round of a case.
type Sample struct {
	Table  string `json:"table"`
	Case   string `json:"case"`
	Target string `json:"target"`
	// Base is the target of the same case that this one is compared with; "" is none.
	Base  string `json:"base,omitempty"`
	Round int    `json:"round"`
	// Values are in the order of the table's columns. The first one has its spread and its ratio there.
	Values []Value `json:"values"`
}

// Value is one figure of a sample.
type Value struct {
	Name string  `json:"name"`
	Of   float64 `json:"value"`
	// Ratio adds a column with the ratio to the base.
	Ratio bool `json:"-"`
}

// PerSecond is the first value of most samples.
const PerSecond = "per second"

// Report is a run: where it was made, who took part, and every sample.
type Report struct {
	Environment

	// Peers are the versions of other services, Skipped the reasons for which something takes no part, and Failed the
	// measurements that ended with an error.
	Peers   map[string]string `json:"peers"`
	Skipped map[string]string `json:"skipped"`
	Failed  []string          `json:"failed"`
	Samples []Sample          `json:"samples"`
}

// values are those of a name by round.
func (r Report) values(table, inCase, target, name string) map[int]float64 {
	values := map[int]float64{}
	for _, s := range r.Samples {
		if s.Table != table || s.Case != inCase || s.Target != target {
			continue
		}
		for _, v := range s.Values {
			if v.Name == name {
				values[s.Round] = v.Of
			}
		}
	}
	return values
}

// Spread is a target's figure over the rounds.
func (r Report) Spread(table, inCase, target, name string) Spread {
	return SpreadOf(slices.Collect(maps.Values(r.values(table, inCase, target, name))))
}

// Ratio divides a target's figure by that of another target in the same round. A round that lacks one of them, or in
// which the other's is 0, has no ratio.
func (r Report) Ratio(table, inCase, target, base, name string) Spread {
	var ratios []float64
	bases := r.values(table, inCase, base, name)
	for round, value := range r.values(table, inCase, target, name) {
		if bases[round] != 0 {
			ratios = append(ratios, value/bases[round])
		}
	}
	return SpreadOf(ratios)
}

// WriteText writes the report and the goals for people.
func (r Report) WriteText(out io.Writer, goals []Goal) error {
	_, _ = fmt.Fprintln(out, r.Environment)
	for _, peer := range slices.Sorted(maps.Keys(r.Peers)) {
		_, _ = fmt.Fprintf(out, "%s: %s\n", peer, r.Peers[peer])
	}
	for _, what := range slices.Sorted(maps.Keys(r.Skipped)) {
		_, _ = fmt.Fprintf(out, "skipped: %s: %s\n", what, r.Skipped[what])
	}
	for _, failure := range r.Failed {
		_, _ = fmt.Fprintf(out, "failed: %s\n", failure)
	}
	var tables []string
	for _, s := range r.Samples {
		if !slices.Contains(tables, s.Table) {
			tables = append(tables, s.Table)
		}
	}
	for _, table := range tables {
		if err := r.writeTable(out, table); err != nil {
			return err
		}
	}
	if len(goals) == 0 {
		return nil
	}
	return writeGoals(out, goals)
}

// WriteJSON writes all samples.
func (r Report) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// writeTable writes a row for each case and target, in the order in which they were first measured.
func (r Report) writeTable(out io.Writer, table string) error {
	type row struct{ inCase, target, base string }
	var rows []row
	var columns []Value
	compared := false
	for _, s := range r.Samples {
		if s.Table != table {
			continue
		}
		if next := (row{s.Case, s.Target, s.Base}); !slices.Contains(rows, next) {
			rows = append(rows, next)
		}
		if len(s.Values) > len(columns) {
			columns = s.Values
		}
		compared = compared || s.Base != ""
	}
	header := []string{"case", "target"}
	for i, c := range columns {
		header = append(header, c.Name)
		if i == 0 {
			header = append(header, "(min", "max)")
		}
		if compared && (i == 0 || c.Ratio) {
			header = append(header, "to base", "(min", "max)")
		}
	}
	lines := [][]string{header}
	for _, w := range rows {
		line := []string{w.inCase, w.target}
		for i, c := range columns {
			spread := cells(r.Spread(table, w.inCase, w.target, c.Name))
			line = append(line, spread[0])
			if i == 0 {
				line = append(line, spread[1:]...)
			}
			if compared && (i == 0 || c.Ratio) {
				line = append(line, cells(r.Ratio(table, w.inCase, w.target, w.base, c.Name))...)
			}
		}
		lines = append(lines, line)
	}
	return WriteTable(out, table, lines)
}

// WriteTable writes lines of cells below a title; the first is the header.
func WriteTable(out io.Writer, title string, lines [][]string) error {
	_, _ = fmt.Fprintf(out, "\n%s\n\n", title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		_, _ = fmt.Fprintln(table, strings.Join(line, "\t")+"\t")
	}
	return table.Flush()
}

// cells are the three of a spread.
func cells(s Spread) []string {
	return []string{Number(s.Median), "(" + Number(s.Low), Number(s.High) + ")"}
}

// Number shows three digits that count, and a dash where nothing was measured.
func Number(value float64) string {
	switch size := math.Abs(value); {
	case math.IsNaN(value):
		return "-"
	case size >= 10e6:
		return fmt.Sprintf("%.1fM", value/1e6)
	case size >= 100:
		return fmt.Sprintf("%.0f", value)
	case size >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// Goal is a target that we set ourselves, and what was measured of it.
type Goal struct {
	Name string
	// Limit is the least that the figure may be, or the most if AtMost.
	Limit  float64
	AtMost bool
	Figure Spread
}

// verdict judges by the median over the rounds.
func (g Goal) verdict() string {
	switch {
	case math.IsNaN(g.Figure.Median):
		return "not measured"
	case g.AtMost == (g.Figure.Median < g.Limit) || g.Figure.Median == g.Limit:
		return "met"
	}
	return "missed"
}

func writeGoals(out io.Writer, goals []Goal) error {
	lines := [][]string{{"target", "goal", "measured", "(min", "max)", ""}}
	for _, g := range goals {
		relation := "at least "
		if g.AtMost {
			relation = "at most "
		}
		line := append([]string{g.Name, relation + Number(g.Limit)}, cells(g.Figure)...)
		lines = append(lines, append(line, g.verdict()))
	}
	return WriteTable(out, "Targets that we set ourselves", lines)
}

// Spread is what the rounds of one measurement come to. Without any round all three are NaN.
type Spread struct {
	Median, Low, High float64
}

// SpreadOf summarizes one value a round.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{Median: median, Low: sorted[0], High: sorted[len(sorted)-1]}
}

// Percentile is the smallest of the sorted latencies that at least the share p of them (0 to 1) does not exceed, in
// milliseconds; 0 where there are none.
func Percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[min(max(rank, 1), len(sorted))-1].Microseconds()) / 1000
}

// Environment is what figures depend on beside the code.
type Environment struct {
	At   time.Time `json:"at"`
	CPUs int       `json:"cpus"`
	Go   string    `json:"go"`
	// FlushMicroseconds is the median time in which a page that was written over is on disk, in the temporary directory,
	// where private servers have their data.
	FlushMicroseconds float64 `json:"flush_us,omitempty"`
	// PostgreSQL are settings of the server's, by name.
	PostgreSQL map[string]string `json:"environment"`
}

// readEnvironment reads the settings of the database, and measures a flush.
func readEnvironment(ctx context.Context, db *pgxpool.Pool) (Environment, error) {
	environment := Environment{At: time.Now().UTC(), CPUs: runtime.NumCPU(), Go: runtime.Version()}
	err := db.QueryRow(ctx, `
		select json_object_agg(name, setting) from pg_settings where name in (
			'server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method', 'wal_level', 'commit_delay',
			'shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'autovacuum', 'max_connections')`,
	).Scan(&environment.PostgreSQL)
	if err != nil {
		return environment, fmt.Errorf("read the settings: %w", err)
	}
	flush, err := flushTime("")
	if err != nil {
		return environment, fmt.Errorf("see how long a flush takes: %w", err)
	}
	environment.FlushMicroseconds = float64(flush.Nanoseconds()) / 1000
	return environment, nil
}

func (e Environment) String() string {
	text := fmt.Sprintf("%d CPUs, %s, PostgreSQL %s, fsync %s, synchronous_commit %s",
		e.CPUs, e.Go, e.PostgreSQL["server_version"], e.PostgreSQL["fsync"], e.PostgreSQL["synchronous_commit"])
	if e.FlushMicroseconds > 0 {
		text += fmt.Sprintf(", a flush takes %.0f µs", e.FlushMicroseconds)
	}
	return text
}

const (
	flushes    = 200
	flushBytes = 8 << 10 // a page of PostgreSQL's
)

// flushTime writes pages of a file in dir over, as a log does that is used again, each followed by fsync, and returns
// the median time of that.
func flushTime(dir string) (_ time.Duration, err error) {
	file, err := os.CreateTemp(dir, "fencegate-flush-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	page := make([]byte, flushBytes)
	var took []time.Duration
	for i := range 2 * flushes { // once to make the file, once to measure
		before := time.Now()
		if _, err := file.WriteAt(page, int64(i%flushes)*flushBytes); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		if i >= flushes {
			took = append(took, time.Since(before))
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
