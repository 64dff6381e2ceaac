package metrics

import "github.com/fencegate/fencegate/store/groupcommit"

const (
	laneQuick    = "quick"
	laneLarge    = "large"
	laneLockWait = "lock_wait"
)

var laneLabel = Label{Name: "lane", Values: []string{laneQuick, laneLarge, laneLockWait}}

var groupSubject = &subject{title: "The group commit"}

var (
	commitTimeFamily = groupSubject.histogram("fencegate_write_commit_duration_seconds",
		"Time that a batch of writes took in the database until its commit, by lane: quick; large, of large "+
			"values; lock_wait, of resources whose fence another session had locked.",
		"The disk, or the standby that commits wait for; in `lock_wait`, locks. Failed batches are not counted.",
		durationBuckets, laneLabel)
	batchSizeFamily = groupSubject.histogram("fencegate_write_batch_size",
		"Writes in a batch.",
		"Grows with the load: that many writes share the cost of a commit.",
		batchSizes())
	batchesFamily = groupSubject.gauge("fencegate_write_batches_in_flight",
		"Batches being committed, by lane.",
		"All lanes together have at most `--write-batches-max`.",
		laneLabel)
	queueFamily = groupSubject.gauge("fencegate_write_queue_writes",
		"Writes that wait for a batch.",
		"Usually near 0. If it grows, the database does not keep up, or a fence is locked for long.")
	queueBytesFamily = groupSubject.gauge("fencegate_write_queue_bytes",
		"Bytes of the writes that wait for a batch.",
		"As above, for `--write-queue-bytes-max`.")
	queueRefusedFamily = groupSubject.counter("fencegate_write_queue_refused_total",
		"Writes that were refused because too many waited.",
		"More load than the database takes (`--write-queue-max`, `--write-queue-bytes-max`). Clients get "+
			"`unavailable`.")
)

func (r *readings) group(s groupcommit.Stats) {
	r.value(queueFamily, float64(s.Queued))
	r.value(queueBytesFamily, float64(s.QueuedBytes))
	r.value(queueRefusedFamily, float64(s.Refused))
	r.value(batchesFamily, float64(s.InFlight.Quick), laneQuick)
	r.value(batchesFamily, float64(s.InFlight.Large), laneLarge)
	r.value(batchesFamily, float64(s.InFlight.LockWait), laneLockWait)
	r.durations(commitTimeFamily, s.Commits.Quick, laneQuick)
	r.durations(commitTimeFamily, s.Commits.Large, laneLarge)
	r.durations(commitTimeFamily, s.Commits.LockWait, laneLockWait)
	r.histogram(batchSizeFamily, s.Batches, float64(s.Writes), s.BatchSizes[:])
}

func batchSizes() []float64 {
	sizes := make([]float64, len(groupcommit.SizeBounds))
	for i, bound := range groupcommit.SizeBounds {
		sizes[i] = float64(bound)
	}
	return sizes
}
