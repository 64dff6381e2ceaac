package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// leasedCodeLabel has the codes of rejections whose token belonged to a lease.
var leasedCodeLabel = Label{Name: "code", Values: texts(
	api.CodeTokenStale, api.CodeLeaseMismatch, api.CodeLeaseExpired, api.CodeVersionMismatch,
)}

// lateBuckets span from a delay on the network to a day, in seconds.
var lateBuckets = []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}

var rejectionSubject = &subject{title: "Rejected writes"}

var (
	rejectedFamily = rejectionSubject.counter("fencegate_rejected_writes_total",
		"Rejected writes by code and kind: `zombie` (the lease had ended, or a newer token was granted), `numbering` "+
			"(the token's number was used before), `reader` (the token of a shared lease), `conflict` (the record has "+
			"another version) or `misuse` (no token, one that was never granted, or another lease's `lease_id`).",
		"`zombie` is what the fence is for. `numbering`, `reader` and `misuse` are defects of clients. `conflict` is "+
			"ordinary compare-and-swap.",
		Label{Name: "code", Values: rejectionCodes}, Label{Name: "kind", Values: kindNames()})
	earlyFamily = rejectionSubject.counter("fencegate_early_refusals_total",
		"Writes that were refused as superseded from memory, without the database. `fencegate_writes_total` "+
			"counts them, too.",
		"Zombies that write again and again, and cost the database nothing.")
	rememberedFamily = rejectionSubject.gauge("fencegate_refusals_remembered",
		"Resources whose stale tokens this gateway can refuse without the database.",
		"At most `--refusals-remembered-max`; 0 after a reconnect or a change of policies.")
	lateFamily = rejectionSubject.histogram("fencegate_rejected_write_lateness_seconds",
		"Time from the end of a lease to the arrival of its rejected write, by code. Identical writes within "+
			"a second count with the latest of them. Only recorded writes count whose lease had ended and is still "+
			"in the database.",
		"How long zombies sleep: the lease's TTL, or the client's timeout, that would have spared them.",
		lateBuckets, leasedCodeLabel)
	tokenAgeFamily = rejectionSubject.histogram("fencegate_rejected_token_age_seconds",
		"Time from the grant of a token to the arrival of its rejected write, by code; as above, but of every "+
			"lease that is still in the database.",
		"Old tokens are processes that were frozen or partitioned, young ones processes that work without "+
			"renewing.",
		lateBuckets, leasedCodeLabel)
	droppedFamily = rejectionSubject.counter("fencegate_rejections_dropped_total",
		"Rejections that were not recorded because too many waited.",
		"The writes were rejected all the same and count in `fencegate_writes_total`. Only the record "+
			"(`/v1/rejections`) misses them.")
)

func kindNames() []string {
	names := make([]string, len(store.RejectionKinds))
	for i, kind := range store.RejectionKinds {
		names[i] = string(kind)
	}
	return names
}

// WatchedRecorder reports the rejections that it records; *postgres.Recorder is one.
type WatchedRecorder interface {
	Dropped() uint64
	OnRecorded(recorded func([]store.Recorded))
}

// WatchRecorder shows how many rejections were not recorded, and how late the recorded ones were. It must be called
// once, before the recorder runs.
func (m *Metrics) WatchRecorder(recorder WatchedRecorder) {
	m.registry.onScrape(func(to *readings) { to.value(droppedFamily, float64(recorder.Dropped())) }, droppedFamily)
	late, age := newTallies(lateFamily), newTallies(tokenAgeFamily)
	recorder.OnRecorded(func(recorded []store.Recorded) {
		for i := range recorded {
			one := &recorded[i]
			late.add(one.Verdict, one.Late, one.Writes)
			age.add(one.Verdict, one.TokenAge, one.Writes)
		}
	})
	m.registry.onScrape(late.show, lateFamily)
	m.registry.onScrape(age.show, tokenAgeFamily)
}

// tallies is a histogram by code to which many writes are added at once: the writes of a zombie arrive here once a
// second, with their number. It is safe for concurrent use.
type tallies struct {
	of *Family

	mu     sync.Mutex
	byCode map[string]*tally // those of the label
}

type tally struct {
	count uint64
	sum   float64
	upTo  []uint64 // by bucket, the lower ones included
}

func newTallies(of *Family) *tallies {
	t := &tallies{of: of, byCode: map[string]*tally{}}
	for _, code := range of.Labels[0].Values {
		t.byCode[code] = &tally{upTo: make([]uint64, len(of.Buckets))}
	}
	return t
}

// add counts writes of the same duration; nil: it is not known.
func (t *tallies) add(verdict store.Verdict, duration *time.Duration, writes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := t.byCode[string(verdict)]
	if to == nil || duration == nil {
		return
	}
	seconds := duration.Seconds()
	to.count += uint64(writes)
	to.sum += seconds * float64(writes)
	first, _ := slices.BinarySearch(t.of.Buckets, seconds)
	for i := first; i < len(to.upTo); i++ {
		to.upTo[i] += uint64(writes)
	}
}

func (t *tallies) show(to *readings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for code, one := range t.byCode {
		to.histogram(t.of, one.count, one.sum, one.upTo, code)
	}
}
