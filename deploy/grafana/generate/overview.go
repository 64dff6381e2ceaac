package main

// overview tells whether it works, and if not, where to look: for the writes their rate, errors and duration; for what they
// go through (the group commit, the database, the processes) how busy it is, how much waits for it, and what fails.
func overview() dashboard {
	return dashboard{
		file: "overview.json", uid: "fencegate-overview", title: "fencegate: overview",
		description: "Is it well, how much goes through, who is shut out, and what it waits for.",
		rows: []row{
			{"At a glance", glance()},
			{"Writes", writes()},
			{"Zombies", zombies()},
			{"Group commit", groupCommit()},
			{"Database", databasePanels()},
			{"Gateways", processes()},
		},
	}
}

func glance() []panel {
	return []panel{
		number("Alerts that fire", "none", "See Prometheus for which; each has a section in docs/operations.md.",
			q(`count(ALERTS{alertname=~"Fencegate.+",alertstate="firing"}) or vector(0)`, ""), step{"green", 0}, step{"red", 1}),
		number("Gateways", "none", "Those that Prometheus reaches.", q(`sum(up{@})`, ""), step{"red", 0}, step{"green", 1}),
		number("Database", "none", "Whether any gateway can use it.", database("fencegate_database_up{@}", ""), step{"red", 0}, step{"green", 1}).
			is("0", "away").is("1", "ok"),
		number("Accepted", "wps", "Writes a second, by all sources.", q(`sum(rate(fencegate_writes_total{@,result="accepted"}[#]))`, "")),
		number("Shut out", "wps", "Writes a second that came with a token that was no longer good.",
			q(`sum(rate(fencegate_writes_total{@,result=~"token_stale|lease_expired"}[#]))`, ""), step{"orange", 0.1}),
		number("Leases held", "none", "Leases that run now.", database(`fencegate_leases{@,state="held"}`, "")),
		number("Waiting", "none", "Callers who stand in line for a lock.", database("fencegate_waiters{@}", "")),
		number("Longest wait", "s", "How long the one has waited who has waited longest. The candidates of an election wait for as long as somebody leads.",
			database("fencegate_oldest_wait_seconds{@}", "")),
	}
}

func writes() []panel {
	return []panel{
		stack("Accepted, by source", "wps", "A transaction is one write.", q(`sum by (source) (rate(fencegate_writes_total{@,result="accepted"}[#]))`, "{{source}}")),
		stack("Not accepted, by result", "wps", "token_stale are zombies; version_mismatch is ordinary optimism; unavailable is the database, or a full queue.",
			q(`sum by (result) (rate(fencegate_writes_total{@,result!="accepted"}[#]))`, "{{result}}")),
		chart("Duration", "s", "From a write's arrival to its verdict.", quantiles("fencegate_write_duration_seconds", "", "source")...),
		stack("HTTP requests, by status", "reqps", "412 are rejected writes, 409 locks that are held, 5xx failures of the gateway or the database.",
			q(`sum by (status) (rate(fencegate_http_request_duration_seconds_count{@}[#]))`, "{{status}}")),
		chart("HTTP requests, by route", "reqps", "The ten busiest.",
			q(`topk(10, sum by (route) (rate(fencegate_http_request_duration_seconds_count{@}[#])))`, "{{route}}")),
		chart("HTTP requests in flight", "none", "Those that wait in line and streams of events are left out.",
			q(`fencegate_http_requests_in_flight{@} - fencegate_waiting_acquires{@} - fencegate_open_watches{@}`, "{{instance}}")),
	}
}

func zombies() []panel {
	return []panel{
		stack("Shut out, by code", "wps", "Late writes that the fence has refused. Single ones show that it works; many, that holders lose their leases while they work.",
			q(`sum by (result) (rate(fencegate_writes_total{@,result=~"token_stale|token_unknown|lease_expired|lease_mismatch"}[#]))`, "{{result}}")),
		chart("How late they were", "s", "Time from the end of the lease to the write. Compare it with the TTL: it is how long a holder was away.",
			quantiles("fencegate_rejected_write_lateness_seconds", `code="token_stale"`, "")...),
		chart("How old their tokens were", "s", "Time from the grant of the token to the write.",
			quantiles("fencegate_rejected_token_age_seconds", `code="token_stale"`, "")...),
		chart("Refused early", "wps", "From memory, without the database: zombies that hammer.",
			q(`sum by (instance) (rate(fencegate_early_refusals_total{@}[#]))`, "{{instance}}")).wide(12),
		chart("Rejections that were not recorded", "wps", "They were refused all the same; only their record is missing, since too many came at once.",
			q(`sum by (instance) (rate(fencegate_rejections_dropped_total{@}[#]))`, "{{instance}}")).wide(12),
	}
}

func groupCommit() []panel {
	return []panel{
		chart("Commits", "s", "Time that a batch took in the database. The lane lock_wait has writes to fences that another session had locked.",
			quantiles("fencegate_write_commit_duration_seconds", "", "lane")...),
		chart("Writes in a batch", "none", "Grows with the load: what it costs to commit is shared by so many.",
			q(`sum(rate(fencegate_write_batch_size_sum{@}[#])) / sum(rate(fencegate_write_batch_size_count{@}[#]))`, "mean")),
		chart("Batches in flight", "none", "Those that are being committed; all lanes together have at most --write-batches-max.",
			q(`sum by (instance, lane) (fencegate_write_batches_in_flight{@})`, "{{instance}} {{lane}}")),
		chart("Queue", "none", "Writes that wait for a batch. Stands near 0; where it grows, the database does not keep up.",
			q(`fencegate_write_queue_writes{@}`, "{{instance}}")),
		chart("Refused by a full queue", "wps", "More load than the database takes.", q(`rate(fencegate_write_queue_refused_total{@}[#])`, "{{instance}}")),
		chart("Tried again", "ops", "What the gateways repeated by themselves, by reason; busy are fences that somebody else had locked.",
			q(`sum by (reason) (rate(fencegate_retries_total{@}[#]))`, "{{reason}}")),
	}
}

func databasePanels() []panel {
	connections := chart("Connections in use", "percentunit", "Of those that a gateway may have (--database-connections-max). At 100 % statements wait.",
		q(`fencegate_database_connections{@,state="busy"} / ignoring(state) fencegate_database_connections{@,state="max"}`, "{{instance}}"))
	connections.max = 1
	return []panel{
		connections,
		chart("Statements that waited for a connection", "ops", "Many: more connections, or a faster database.",
			q(`rate(fencegate_database_connection_waits_total{@}[#])`, "{{instance}}")),
		chart("Failed statements, by reason", "ops", "connection: the database is away; timeout: it is slow; read_only: a standby; busy: a fence that somebody else kept locked.",
			q(`sum by (reason) (rate(fencegate_database_errors_total{@}[#]))`, "{{reason}}")),
		number("Hears notifications", "none", "Gateways whose connection for notifications stands. Without it waiters are served by polling, up to two seconds late.",
			q(`sum(fencegate_database_listening{@})`, "")).wide(4),
		number("Synchronous standbys", "none", "Standbys that confirm each commit.", database("fencegate_database_synchronous_standbys{@}", "")).wide(4),
		number("Synchronous standbys expected", "none", "Whether the database is set to wait for one.", database("fencegate_database_synchronous_expected{@}", "")).
			is("0", "no").is("1", "yes").wide(4),
		number("Newest token", "none", "The greatest that was granted. After a failover it jumps by 2^20 for each second since 2025.",
			database("fencegate_newest_token{@}", "")).wide(4),
		number("Jumps", "none", "How often the database was found to be another one than before: failovers and restores.",
			database("fencegate_token_jumps{@}", "")).wide(4),
		number("Reconnects", "none", "How often gateways have lost their connection for notifications, since they started.",
			q(`sum(fencegate_listener_reconnects_total{@})`, "")).wide(4),
	}
}

func processes() []panel {
	versions := number("Versions", "none", "Which versions run.", q(`count by (version) (fencegate_build_info{@})`, "{{version}}")).wide(8)
	versions.height, versions.names = 8, true
	return []panel{
		chart("CPU", "none", "Cores in use.", q(`rate(process_cpu_seconds_total{@}[#])`, "{{instance}}")),
		chart("Memory", "bytes", "Resident memory.", q(`process_resident_memory_bytes{@}`, "{{instance}}")),
		chart("Uptime", "s", "Time since the process started.", q(`time() - process_start_time_seconds{@}`, "{{instance}}")),
		chart("Goroutines", "none", "Grows with waiters and streams, and goes back with them.", q(`go_goroutines{@}`, "{{instance}}")),
		chart("Open files", "percentunit", "Of those that the process may open: connections, mostly.", q(`process_open_fds{@} / process_max_fds{@}`, "{{instance}}")),
		versions,
	}
}
