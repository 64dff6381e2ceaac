package load

import (
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
)

// Report is what a run came to.
type Report struct {
	Clients  int      `json:"clients"`
	Locks    int      `json:"locks"`
	Seed     uint64   `json:"seed"`
	Gateways []string `json:"gateways"`
	// Prefix begins the names of all locks of the run.
	Prefix string `json:"prefix"`
	// Took is without the readings at the end.
	Took        time.Duration `json:"-"`
	TookMS      int64         `json:"took_ms"`
	Interrupted bool          `json:"interrupted"`

	Operations []Operation  `json:"operations"`
	Counts     Counts       `json:"counts"`
	Rejections []Rejections `json:"rejections"`
	// Pressure is what was done beside the checked clients.
	Pressure []PressureReport `json:"pressure,omitempty"`
	// Unread is how many resources could not be read at the end.
	Unread int `json:"unread"`
	// Surprises are the first of the answers that no client can have deserved, such as invalid_request or internal.
	Surprises []string `json:"surprises"`

	ViolationsTotal int64 `json:"violations_total"`
	// Violations are the first of them.
	Violations []spec.Violation `json:"violations"`
}

// Operation is how one kind of call did. Latencies are accurate within 3%. Those of waiting acquires
// include the wait.
type Operation struct {
	Name      string  `json:"operation"`
	Count     int64   `json:"count"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
}

// Rejections counts refusals by the code, and the reason where there is one.
type Rejections struct {
	Code  string `json:"code"`
	Count int64  `json:"count"`
}

// Counts is what was done, and came of it.
type Counts struct {
	Grants       int64 `json:"grants"`
	SharedGrants int64 `json:"shared_grants"`
	// Writes are numbered writes, each counted once however often it was sent.
	Writes   int64 `json:"writes"`
	Admitted int64 `json:"admitted"`
	Doubtful int64 `json:"doubtful"`
	// Repeats are attempts of writes that were sent more than once; Replays, those answered as replays.
	Repeats int64 `json:"repeats"`
	Replays int64 `json:"replays"`
	// Freezes are holders that paused past their TTL; ZombiesShutOut, those whose write was rejected after it, and
	// LateAdmitted those whose write was admitted, because no other lease was granted.
	Freezes        int64 `json:"freezes"`
	ZombiesShutOut int64 `json:"zombies_shut_out"`
	LateAdmitted   int64 `json:"late_admitted"`
	// Abandoned are leases that were left to expire.
	Abandoned int64 `json:"abandoned"`
	// LostAnswers are requests whose answer was discarded on purpose.
	LostAnswers int64 `json:"lost_answers"`
	Unavailable int64 `json:"unavailable"`
	Unexpected  int64 `json:"unexpected"`
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d clients on %d locks (%s/…) for %.1fs, seed %d%s\n\n", r.Clients, r.Locks, r.Prefix,
		r.Took.Seconds(), r.Seed, map[bool]string{true: ", interrupted"}[r.Interrupted])
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "OPERATION\tCOUNT\tPER SECOND\tP50 MS\tP99 MS\t")
	for _, op := range r.Operations {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%.0f\t%.1f\t%.1f\t\n", op.Name, op.Count, op.PerSecond, op.P50MS, op.P99MS)
	}
	_, _ = fmt.Fprintln(table, "\t\t\t\t\t\nREJECTED WITH\tCOUNT\t\t\t\t")
	for _, rejections := range r.Rejections {
		_, _ = fmt.Fprintf(table, "%s\t%d\t\t\t\t\n", rejections.Code, rejections.Count)
	}
	_ = table.Flush()
	r.writeCounts(&text)
	_, err := io.WriteString(out, text.String())
	return err
}

// writeCounts writes what was done, and what was found.
func (r *Report) writeCounts(text *strings.Builder) {
	c := r.Counts
	fmt.Fprintf(text, "\n%d leases, %d of them shared; %d left to expire, %d holders frozen past their TTL\n"+
		"%d writes: %d admitted, %d in doubt; sent again %d times, answered as a replay %d times\n"+
		"%d zombies' writes rejected; %d late ones admitted, since no newer lease was granted\n"+
		"%d answers lost on purpose; unavailable %d times\n",
		c.Grants, c.SharedGrants, c.Abandoned, c.Freezes, c.Writes, c.Admitted, c.Doubtful, c.Repeats, c.Replays,
		c.ZombiesShutOut, c.LateAdmitted, c.LostAnswers, c.Unavailable)
	for _, p := range r.Pressure {
		fmt.Fprintf(text, "pressure %s: %d calls answered, %d of them refused, %d unavailable\n", p.Kind, p.Calls,
			p.Refused, p.Unavailable)
	}
	if r.Unread > 0 {
		fmt.Fprintf(text, "%d resources could not be read at the end, and are not checked whole\n", r.Unread)
	}
	if c.Unexpected > 0 {
		fmt.Fprintf(text, "\nUNEXPECTED ANSWERS: %d\n", c.Unexpected)
		for _, surprise := range r.Surprises {
			fmt.Fprintf(text, "  %s\n", surprise)
		}
	}
	if r.ViolationsTotal == 0 {
		fmt.Fprintln(text, "\nno violations")
		return
	}
	fmt.Fprintf(text, "\nVIOLATIONS: %d\n", r.ViolationsTotal)
	for _, v := range r.Violations {
		fmt.Fprintf(text, "%s\n\n", v)
	}
	if hidden := r.ViolationsTotal - int64(len(r.Violations)); hidden > 0 {
		fmt.Fprintf(text, "and %d more\n", hidden)
	}
}

// The operations that are measured.
const (
	opAcquire = "acquire"
	opWait    = "acquire, waiting"
	opRenew   = "renew"
	opWrite   = "write"
	opRelease = "release"
	opRead    = "read"
)

// operations is their order in the report.
var operations = []string{opAcquire, opWait, opRenew, opWrite, opRelease, opRead}

// surprisesKept bounds how many unexpected answers are reported.
const surprisesKept = 20

// tally counts what clients do. It is safe for concurrent use.
type tally struct {
	answered atomic.Int64

	mu         sync.Mutex
	latencies  map[string]*latencies
	rejections map[string]int64
	counts     Counts
	surprises  []string
	unreached  error
}

func newTally() *tally {
	t := &tally{latencies: map[string]*latencies{}, rejections: map[string]int64{}}
	for _, op := range operations {
		t.latencies[op] = &latencies{}
	}
	return t
}

// note counts an answer, or its lack.
func (t *tally) note(op string, took time.Duration, err error) {
	t.answered.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latencies[op].add(took)
	if err == nil {
		return
	}
	name := "foreign_answer"
	if problem := lockclient.ProblemOf(err); problem != nil {
		name = string(problem.Code)
		if problem.Reason != "" {
			name += "/" + problem.Reason
		}
	}
	t.rejections[name]++
}

// surprise notes an answer that a client can't have deserved.
func (t *tally) surprise(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Unexpected++
	if len(t.surprises) < surprisesKept {
		t.surprises = append(t.surprises, what)
	}
}

// unavailable notes that a gateway could not be reached, or could not serve.
func (t *tally) unavailable(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unreached = err
	t.counts.Unavailable++
}

func (t *tally) count(add func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add(&t.counts)
}

// report fills in what was counted.
func (t *tally) report(r *Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Counts = t.counts
	r.Surprises = slices.Clone(t.surprises)
	for _, op := range operations {
		l := t.latencies[op]
		r.Operations = append(r.Operations, Operation{
			Name: op, Count: l.count, PerSecond: float64(l.count) / r.Took.Seconds(), P50MS: l.percentile(0.50),
			P99MS: l.percentile(0.99),
		})
	}
	for _, code := range slices.Sorted(maps.Keys(t.rejections)) {
		r.Rejections = append(r.Rejections, Rejections{Code: code, Count: t.rejections[code]})
	}
}

// stepBits gives every power of two this many bits of steps: a latency is accurate within 1/32, 3%.
const stepBits = 5

// latencies counts durations in steps of microseconds. Its size does not depend on how many there are.
type latencies struct {
	steps [(64 - stepBits) << stepBits]int64
	count int64
}

func (l *latencies) add(d time.Duration) {
	l.steps[stepOf(d)]++
	l.count++
}

// percentile is the end of the step that the share p (0 to 1) does not exceed, in milliseconds; 0 where there are none.
func (l *latencies) percentile(p float64) float64 {
	rank := max(1, int64(math.Ceil(p*float64(l.count))))
	seen := int64(0)
	for step, count := range l.steps {
		seen += count
		if seen >= rank {
			return float64(stepEnd(step)) / 1000
		}
	}
	return 0
}

// stepOf numbers the steps: below 2^stepBits each microsecond is one, from then on a step doubles with every power of
// two.
func stepOf(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-stepBits-1)
	return shift<<stepBits + int(us>>shift)
}

// stepEnd is the greatest number of microseconds in a step.
func stepEnd(step int) int64 {
	shift := max(0, step>>stepBits-1)
	return int64(step-shift<<stepBits+1)<<shift - 1
}
