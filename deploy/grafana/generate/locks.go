package main

// locks is the dashboard of locks and leases: how many there are, their holders, the queues, and the sweeps.
func locks() dashboard {
	return dashboard{
		file: "locks.json", uid: "fencegate-locks", title: "fencegate: locks and leases",
		description: "Held locks, their holders, the queues, and the sweeps.",
		rows: []row{
			{"Now", now()},
			{"Leases", leases()},
			{"Waiting and watching", waiting()},
			{"Sessions", sessions()},
			{"Keeping house", house()},
		},
	}
}

func now() []panel {
	return []panel{
		number("Locks", "none", "Names that were ever locked, held or not.", database("fencegate_locks{@}", "")),
		number("Held", "none", "Leases that run.", database(`fencegate_leases{@,state="held"}`, "")),
		number("Expiring", "none", "Leases with less than a quarter of their TTL left: a renewal is overdue.",
			database(`fencegate_leases{@,state="expiring"}`, "")),
		number("Expired", "none", "Leases that have run out, and were not replaced yet.",
			database(`fencegate_leases{@,state="expired"}`, "")),
		number("Waiting", "none", "Waiters in all queues.", database("fencegate_waiters{@}", "")),
		number("Longest wait", "s", "The wait of the waiter that has waited longest.",
			database("fencegate_oldest_wait_seconds{@}", "")),
		number("Sessions", "none", "Sessions that live.", database("fencegate_sessions{@}", "")),
		number("Age of these numbers", "s", "They are counted every few seconds by one gateway; more than a minute is too "+
			"old to trust.",
			q(`min(fencegate_inventory_age_seconds{@})`, ""), step{"green", 0}, step{"red", 60}),
	}
}

func leases() []panel {
	return []panel{
		stack("Acquires, by result", "ops", "lock_held is contention.",
			q(`sum by (result) (rate(fencegate_lease_operations_total{@,operation="acquire"}[#]))`, "{{result}}")),
		stack("Granted, by mode", "ops", "Exclusive for writers, shared for readers.",
			q(`sum by (mode) (rate(fencegate_lease_operations_total{@,operation="acquire",result="ok"}[#]))`, "{{mode}}")),
		stack("Renewals, releases and breaks", "ops", "Those that succeeded.",
			q(`sum by (operation) (rate(fencegate_lease_operations_total{@,operation!="acquire",result="ok"}[#]))`,
				"{{operation}}")),
		chart("Duration, by operation", "s", "Without acquires that waited.",
			quantiles("fencegate_lease_operation_duration_seconds", "", "operation")...),
		chart(
			"Renewals of leases that were lost",
			"ops",
			"Each is a holder that believed it held the lock, and did not.",
			q(
				`sum by (operation) (rate(fencegate_lease_operations_total{@,operation=~"renew|release",result="lease_lost"}[#]))`,
				"{{operation}}",
			),
		),
		chart("Late heartbeats", "s", "How much later than a third of the TTL renewals and keepalives came. Two thirds of "+
			"the TTL late is a lost lease.",
			quantiles("fencegate_heartbeat_lateness_seconds", "", "")...),
		chart("Age of leases at their release", "s", "How long locks are held.",
			quantiles("fencegate_lease_age_at_release_seconds", "", "mode")...).wide(12),
		chart("Leases over time", "none", "expiring are those with less than a quarter of their TTL left.",
			q(`max by (state) (fencegate_leases{@})`, "{{state}}")).wide(12),
	}
}

func waiting() []panel {
	return []panel{
		chart("Waiters", "none", "In all queues.", database("fencegate_waiters{@}", "waiting")),
		chart("How long they waited", "s", "Only waiters that were granted the lock.",
			quantiles("fencegate_acquire_wait_duration_seconds", `result="ok"`, "")...),
		stack("How waits end", "ops", "lock_held gave up when its time was over; client_gone went away before.",
			q(`sum by (result) (rate(fencegate_acquire_wait_duration_seconds_count{@}[#]))`, "{{result}}")),
		chart("Waiters, by gateway", "none", "Each holds a connection to its gateway.",
			q(`fencegate_waiting_acquires{@}`, "{{instance}}")),
		chart("Streams of events, by gateway", "none", "Watches, observers and dashboards; at --watches-max the next one "+
			"is refused.",
			q(`fencegate_open_watches{@}`, "{{instance}}")),
		chart("Longest wait", "s", "The wait of the waiter that has waited longest.",
			database("fencegate_oldest_wait_seconds{@}", "longest")),
	}
}

func sessions() []panel {
	return []panel{
		chart("Sessions", "none", "Those that live.", database("fencegate_sessions{@}", "sessions")).wide(12),
		stack("Made, kept alive, ended", "ops", "lease_lost of a keepalive is an owner that was away for too long: all "+
			"leases of its session are lost.",
			q(`sum by (operation, result) (rate(fencegate_session_operations_total{@}[#]))`,
				"{{operation}} {{result}}")).wide(12),
	}
}

func house() []panel {
	return []panel{
		stack("Swept, by kind", "ops", "lease_expired and session_expired are holders that did not give back: they "+
			"crashed, or were cut off.",
			q(`sum by (kind) (rate(fencegate_swept_total{@}[#]))`, "{{kind}}")),
		chart("Duration of sweeps", "s", "Nothing waits for a sweep.",
			quantiles("fencegate_sweep_duration_seconds", "", "")...),
		chart("Time since the last sweep", "s", "Of any gateway: one is enough.",
			q(`time() - max(fencegate_last_sweep_timestamp_seconds{@})`, "last sweep")),
	}
}
