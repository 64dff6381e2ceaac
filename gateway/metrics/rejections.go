package gateway

import (
	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// leasedCodeLabel has the codes of rejections whose token was a lease's.
var leasedCodeLabel = label{name: "code", values: []string{
	string(api.CodeTokenStale), string(api.CodeLeaseMismatch), string(api.CodeLeaseExpired), string(api.CodeVersionMismatch),
}}

// lateBuckets are from what is lost in a network to a day, in seconds.
var lateBuckets = []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}

var rejectionSubject = &subject{title: "Rejected writes"}

var (
	earlyFamily = rejectionSubject.declare(family{
		kind: kindCounter, name: "fencegate_early_refusals_total",
		help: "Writes that were refused as superseded from memory, without the database. They are in fencegate_writes_total, too.",
		look: "Zombies that hammer, and cost the database nothing.",
	})
	rememberedFamily = rejectionSubject.declare(family{
		kind: kindGauge, name: "fencegate_refusals_remembered",
		help: "Resources of which this gateway remembers who is shut out, to refuse them without the database.",
		look: "At most `--refusals-remembered-max`; 0 after a reconnect or a change of policies.",
	})
	lateFamily = rejectionSubject.declare(family{
		kind: kindHistogram, name: "fencegate_rejected_write_lateness_seconds",
		help:   "How long after its lease had ended a rejected write came, by code. Writes of one second that are alike count with the latest of them. Only of recorded writes whose lease had ended and is remembered.",
		look:   "How long zombies sleep: what a lease's TTL, or a client's timeout, would have had to be to spare them.",
		labels: []label{leasedCodeLabel}, buckets: lateBuckets,
	})
	tokenAgeFamily = rejectionSubject.declare(family{
		kind: kindHistogram, name: "fencegate_rejected_token_age_seconds",
		help:   "How long before a rejected write its token had been granted, by code; as above, but of all whose lease is remembered.",
		look:   "Old tokens are processes that were frozen or partitioned, young ones those that work without renewing.",
		labels: []label{leasedCodeLabel}, buckets: lateBuckets,
	})
	droppedFamily = rejectionSubject.declare(family{
		kind: kindCounter, name: "fencegate_rejections_dropped_total",
		help: "Rejections that were not recorded because too many waited.",
		look: "They were rejected all the same, and are in `fencegate_writes_total`; only the record (`/v1/rejections`) lacks them.",
	})
)

// WatchedRecorder tells of the rejections that it records; *store.Recorder is one.
type WatchedRecorder interface {
	Dropped() uint64
	OnRecorded(told func([]store.Recorded))
}

// WatchRecorder shows how many rejections were not recorded, and of the others how late they were. It is called once, before the recorder
// runs.
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
