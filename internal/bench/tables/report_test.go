package tables

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/bench"
)

// report has two rounds, in each of which a protected write has 0.7 of the rate of a bare one.
func report(flushMicroseconds float64) Report {
	r := Report{Environment: bench.Environment{CPUs: 2, Go: "go1.26", FlushMicroseconds: flushMicroseconds}}
	sample := func(c Case, target string, round int, perSecond float64) {
		r.Samples = append(r.Samples, Sample{Case: c, Target: target, Round: round, PerSecond: perSecond,
			Milliseconds: 1000 / perSecond, P99MS: 2, CPUMicroseconds: 50})
	}
	for round, speed := range []float64{1000, 4000} {
		writes, bulk := Case{Measure: Writes, Clients: 64}, Case{Measure: Bulk, Clients: 1, Rows: 100, Resources: 1}
		sample(writes, nameBare, round, speed)
		sample(writes, nameProtected, round, 0.7*speed)
		sample(bulk, bulkTable(plainTable), round, speed/1000)
		sample(bulk, bulkTable(protectedTable), round, speed/1250)
	}
	r.Scans = []Scans{{Rows: 1, Target: protectedTable, Table: "fence.fences", Sequential: 0, Index: 4}}
	return r
}

func TestTables(t *testing.T) {
	var tables bytes.Buffer
	if err := report(40).WriteTables(&tables); err != nil {
		t.Fatal(err)
	}
	const want = `2 CPUs, go1.26, PostgreSQL , fsync , synchronous_commit , a flush takes 40 µs; flushes are nearly free here (less than 100 µs): CPU bounds the rate

writes

  clients     target  transactions/s   (min   max)  to base   (min   max)  p99 ms  PostgreSQL's CPU µs  to base
       64       bare            2500  (1000  4000)     1.00  (1.00  1.00)    2.00                   50     1.00
       64  protected            1750   (700  2800)     0.70  (0.70  0.70)    2.00                   50     1.00

bulk: 100 rows of 1 resources

          target     ms    (min     max)  time to base   (min   max)
      bulk_plain  625.0  (250.0  1000.0)          1.00  (1.00  1.00)
  bulk_protected  781.2  (312.5  1250.0)          1.25  (1.25  1.25)

plans: the scans of a transaction that updates, deletes and inserts rows

     target  rows       scanned  sequential  by index
  protected     1  fence.fences           0         4
`
	if tables.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &tables, want)
	}
}

func TestGoalsDependOnTheFlush(t *testing.T) {
	for flush, want := range map[float64]map[string]string{
		40: {
			"writes, 64 clients: protected / bare":                          "at least 0.62 met",
			"writes, 8 clients: protected / bare":                           "at least 0.55 not measured",
			"bulk: 100 rows of 1 resources: bulk_protected / bulk_plain":    "at most 1.10 missed",
			"plans: sequential scans of the fences or of a protected table": "at most 0.00 met",
		},
		150: {"writes, 64 clients: protected / bare": "at least 0.85 missed"},
	} {
		var text bytes.Buffer
		if err := report(flush).WriteGoals(&text); err != nil {
			t.Fatal(err)
		}
		for name, verdict := range want {
			line := text.String()[strings.Index(text.String(), name)+len(name):]
			line, _, _ = strings.Cut(line, "\n")
			words := strings.Fields(line)
			if got := strings.Join(append(words[:3], words[6:]...), " "); got != verdict {
				t.Errorf("flush %g µs, %s: got %q, want %q\n%s", flush, name, got, verdict, &text)
			}
		}
	}
}
