package gateway

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
	droppedFamily = rejectionSubject.declare(family{
		kind: kindCounter, name: "fencegate_rejections_dropped_total",
		help: "Rejections that were not recorded because too many waited.",
		look: "They were rejected all the same, and are in `fencegate_writes_total`; only the record (`/v1/rejections`) lacks them.",
	})
)

// WatchRecorder shows how many rejections were not recorded.
func (m *Metrics) WatchRecorder(dropped func() uint64) {
	m.registry.onScrape(func(to *readings) { to.value(droppedFamily, float64(dropped())) }, droppedFamily)
}
