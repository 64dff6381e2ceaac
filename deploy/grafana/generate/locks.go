package main

// locks is the dashboard of locks and leases: their number, their holders, waiters, and sweeps.
func locks() dashboard {
	return dashboard{
		file: "locks.json", uid: "fencegate-locks", title: "fencegate: locks and leases",
		description: "Held locks, the health of their holders, waiters and waits, and sweeps.",
		rows: []row{
			{"Now", now()},
			{"Leases", leases()},
			{"Waiting and watching", waiting()},
			{"Sessions", sessions()},
			{"Sweeps", sweeps()},
		},
	}
}

const longestWaitHelp = "The longest current wait. Candidates of an election wait for as long as another one leads."

func now() []panel {
	return []panel{
		number("Locks", "none", "Names that were ever locked, held or not.", database("fencegate_locks{@}", "")),
		number("Held", "none", "Live leases.", database(`fencegate_leases{@,state="held"}`, "")),
		number("Expiring", "none", "Leases with less than a quarter of their TTL left: a renewal is overdue.",
			database(`fencegate_leases{@,state="expiring"}`, "")),
		number("Expired", "none", "Expired leases that were not replaced yet.",
			database(`fencegate_leases{@,state="expired"}`, "")),
		number("Waiters", "none", "Acquires that wait in a queue.", database("fencegate_waiters{@}", "")),
		number("Longest wait", "s", longestWaitHelp, database("fencegate_oldest_wait_seconds{@}", "")),
		number("Sessions", "none", "Live sessions.", database("fencegate_sessions{@}", "")),
		number("Age of the inventory", "s",
			"One gateway takes these counts every few seconds; more than a minute is too old to trust.",
			q(`min(fencegate_inventory_age_seconds{@})`, ""), step{"green", 0}, step{"red", 60}),
	}
}

func leases() []panel {
	return []panel{
		stack("Acquires, by result", "ops", "lock_held is contention.",
			q(`sum by (result) (rate(fencegate_lease_operations_total{@,operation="acquire"}[#]))`, "{{result}}")),
		stack("Grants, by mode", "ops", "Exclusive for writers, shared for readers.",
			q(`sum by (mode) (rate(fencegate_lease_operations_total{@,operation="acquire",result="ok"}[#]))`, "{{mode}}")),
		stack("Renewals, releases and breaks", "ops", "Successful ones.",
			q(`sum by (operation) (rate(fencegate_lease_operations_total{@,operation!="acquire",result="ok"}[#]))`,
				"{{operation}}")),
		chart("Duration, by operation", "s", "Without acquires that waited in a queue.",
			quantiles("fencegate_lease_operation_duration_seconds", "", "operation")...),
		chart("Renewals of lost leases", "ops", "Each is a holder that believed it held the lock, and did not.",
			q(`sum by (operation) (rate(fencegate_lease_operations_total{@,operation=~"renew|release",result="lease_lost"}[#]))`,
				"{{operation}}")),
		chart("Late heartbeats", "s", "How much later than a third of the TTL renewals and keepalives came. "+
			"Two thirds of the TTL late is a lost lease.", quantiles("fencegate_heartbeat_lateness_seconds", "", "")...),
		chart("Age of leases at their release", "s", "How long locks are held.",
			quantiles("fencegate_lease_age_at_release_seconds", "", "mode")...).wide(12),
		chart("Leases over time", "none", "expiring are those with less than a quarter of their TTL left.",
			q(`max by (state) (fencegate_leases{@})`, "{{state}}")).wide(12),
	}
}

func waiting() []panel {
	return []panel{
		chart("Waiters", "none", "In all queues together.", database("fencegate_waiters{@}", "waiters")),
		chart("Duration of waits", "s", "Of acquires that were granted.",
			quantiles("fencegate_acquire_wait_duration_seconds", `result="ok"`, "")...),
		stack("Ends of waits", "ops", "lock_held: wait_ms was over; client_gone: the client closed the connection.",
			q(`sum by (result) (rate(fencegate_acquire_wait_duration_seconds_count{@}[#]))`, "{{result}}")),
		chart("Waiters, by gateway", "none", "Each holds a connection to its gateway.",
			q(`fencegate_waiting_acquires{@}`, "{{instance}}")),
		chart("Event streams, by gateway", "none",
			"Watches and dashboards; at --watches-max the next one is refused.",
			q(`fencegate_open_watches{@}`, "{{instance}}")),
		chart("Longest wait", "s", longestWaitHelp, database("fencegate_oldest_wait_seconds{@}", "longest")),
	}
}

func sessions() []panel {
	return []panel{
		chart("Sessions", "none", "Live sessions.", database("fencegate_sessions{@}", "sessions")).wide(12),
		stack("Creations, keepalives, ends", "ops",
			"lease_lost of a keepalive is an owner that was away for too long: all leases of its session are lost.",
			q(`sum by (operation, result) (rate(fencegate_session_operations_total{@}[#]))`,
				"{{operation}} {{result}}")).wide(12),
	}
}

func sweeps() []panel {
	return []panel{
		stack("Swept, by kind", "ops",
			"lease_expired and session_expired are holders that did not release: they crashed, or were disconnected.",
			q(`sum by (kind) (rate(fencegate_swept_total{@}[#]))`, "{{kind}}")),
		chart("Duration of sweeps", "s", "Nothing waits for a sweep.",
			quantiles("fencegate_sweep_duration_seconds", "", "")...),
		chart("Time since the last sweep", "s", "Of any gateway: one is enough.",
			q(`time() - max(fencegate_last_sweep_timestamp_seconds{@})`, "last sweep")),
	}
}
