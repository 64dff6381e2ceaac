package load

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

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
