package gateway

import (
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
)

var laneLabel = label{name: "lane", values: []string{"quick", "large", "patient"}}

var groupSubject = &subject{title: "The group commit"}

var (
	commitTimeFamily = groupSubject.declare(family{
		kind: kindHistogram, name: "fencegate_write_commit_duration_seconds",
		help:   "Time that a batch of writes took in the database until it was committed, by lane: quick; large, of large values; patient, of resources whose fence somebody else had locked.",
		look:   "The disk (or the standby that is waited for), and locks in the `patient` lane. A batch that failed is not in it.",
		labels: []label{laneLabel}, buckets: secondsOf(store.DurationBounds[:]),
	})
	batchSizeFamily = groupSubject.declare(family{
		kind: kindHistogram, name: "fencegate_write_batch_size",
		help:    "Writes in a batch.",
		look:    "Grows with the load: what it costs to commit is shared by so many.",
		buckets: batchSizes(),
	})
	batchesFamily = groupSubject.declare(family{
		kind: kindGauge, name: "fencegate_write_batches_in_flight",
		help:   "Batches that are being committed, by lane.",
		look:   "All lanes together have at most `--write-batches-max`.",
		labels: []label{laneLabel},
	})
	queueFamily = groupSubject.declare(family{
		kind: kindGauge, name: "fencegate_write_queue_writes",
		help: "Writes that wait for a batch.",
		look: "Stands near 0. Where it grows, the database does not keep up, or a fence is locked for long.",
	})
	queueBytesFamily = groupSubject.declare(family{
		kind: kindGauge, name: "fencegate_write_queue_bytes",
		help: "Bytes of the writes that wait for a batch.",
		look: "As above, for `--write-queue-bytes-max`.",
	})
	queueRefusedFamily = groupSubject.declare(family{
		kind: kindCounter, name: "fencegate_write_queue_refused_total",
		help: "Writes that were refused because too many waited.",
		look: "More load than the database takes (`--write-queue-max`, `--write-queue-bytes-max`); clients are told `unavailable`.",
	})
)

// groupReadings shows the group commit.
func groupReadings(stats func() groupcommit.Stats) (func(*readings), []*family) {
	read := func(to *readings) {
		s := stats()
		to.value(queueFamily, float64(s.Queued))
		to.value(queueBytesFamily, float64(s.QueuedBytes))
		to.value(queueRefusedFamily, float64(s.Refused))
		to.value(batchesFamily, float64(s.InFlight.Quick), "quick")
		to.value(batchesFamily, float64(s.InFlight.Large), "large")
		to.value(batchesFamily, float64(s.InFlight.LockWait), "patient")
		to.durations(commitTimeFamily, s.Commits.Quick, "quick")
		to.durations(commitTimeFamily, s.Commits.Large, "large")
		to.durations(commitTimeFamily, s.Commits.LockWait, "patient")
		sizes := map[float64]uint64{}
		for i, bound := range batchSizeFamily.buckets {
			sizes[bound] = s.BatchSizes[i]
		}
		to.histogram(batchSizeFamily, s.Batches, float64(s.Writes), sizes)
	}
	return read, groupSubject.families
}

func batchSizes() []float64 {
	sizes := make([]float64, len(groupcommit.SizeBounds))
	for i, bound := range groupcommit.SizeBounds {
		sizes[i] = float64(bound)
	}
	return sizes
}
