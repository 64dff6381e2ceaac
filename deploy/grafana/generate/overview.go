package main

// overview is the dashboard of the whole system: rate, errors and duration of writes; and utilisation, queues and
// failures of the group commit, the database and the processes.
func overview() dashboard {
	return dashboard{
		file: "overview.json", uid: "fencegate-overview", title: "fencegate: overview",
		description: "Health, throughput, rejected writes, and bottlenecks.",
		rows: []row{
			{"At a glance", glance()},
			{"Writes", writes()},
			{"Zombies", zombies()},
			{"Protected tables", tables()},
			{"Group commit", groupCommit()},
			{"Database", databasePanels()},
			{"Gateways", processes()},
		},
	}
}

func glance() []panel {
	return []panel{
		number("Firing alerts", "none", "Prometheus lists them; each has a page in docs/runbooks.",
			q(`count(ALERTS{alertname=~"Fencegate.+",alertstate="firing"}) or vector(0)`, ""),
			step{"green", 0}, step{"red", 1}),
		number("Gateways", "none", "Those that Prometheus reaches.",
			q(`sum(up{@})`, ""), step{"red", 0}, step{"green", 1}),
		number("Database", "none", "Whether any gateway can use it.",
			database("fencegate_database_up{@}", ""), step{"red", 0}, step{"green", 1}).
			is("0", "unavailable").is("1", "ok"),
		number("Accepted", "wps", "Writes a second, of all sources.",
			q(`sum(rate(fencegate_writes_total{@,result="accepted"}[#]))`, "")),
		number("Zombies", "wps", "Rejected writes a second whose lease had ended, or was followed by a newer one.",
			q(`sum(rate(fencegate_rejected_writes_total{@,kind="zombie"}[#]))`, ""), step{"orange", 0.1}),
		number("Leases held", "none", "Live leases.", database(`fencegate_leases{@,state="held"}`, "")),
		number("Waiters", "none", "Acquires that wait in a queue.", database("fencegate_waiters{@}", "")),
		number("Longest wait", "s", longestWaitHelp, database("fencegate_oldest_wait_seconds{@}", "")),
	}
}

func writes() []panel {
	return []panel{
		stack("Accepted, by source", "wps", "A transaction is one write.",
			q(`sum by (source) (rate(fencegate_writes_total{@,result="accepted"}[#]))`, "{{source}}")),
		stack("Not accepted, by result", "wps", "The rejected ones by kind are below; "+
			"unavailable is the database, or a full queue.",
			q(`sum by (result) (rate(fencegate_writes_total{@,result!="accepted"}[#]))`, "{{result}}")),
		chart("Duration", "s", "From a write's arrival to its verdict.",
			quantiles("fencegate_write_duration_seconds", "", "source")...),
		stack("HTTP requests, by status", "reqps",
			"412 are rejected writes, 409 held locks, 5xx failures of the gateway or the database.",
			q(`sum by (status) (rate(fencegate_http_request_duration_seconds_count{@}[#]))`, "{{status}}")),
		chart("HTTP requests, by route", "reqps", "The ten busiest.",
			q(`topk(10, sum by (route) (rate(fencegate_http_request_duration_seconds_count{@}[#])))`, "{{route}}")),
		chart("HTTP requests in flight", "none", "Without waiting acquires and event streams.",
			q(`fencegate_http_requests_in_flight{@} - fencegate_waiting_acquires{@} - fencegate_open_watches{@}`,
				"{{instance}}")),
	}
}

func zombies() []panel {
	return []panel{
		stack("Rejected, by kind", "wps", "Single zombies show that the fence works; many, that holders lose their leases "+
			"while they work. numbering, reader and misuse are defects of clients; conflict is ordinary optimistic locking.",
			q(`sum by (kind) (rate(fencegate_rejected_writes_total{@}[#]))`, "{{kind}}")),
		chart("Lateness", "s", "Time from the end of the lease to the write. Compare it with the TTL: "+
			"it is how long a holder was away.",
			quantiles("fencegate_rejected_write_lateness_seconds", `code="token_stale"`, "")...),
		chart("Age of their tokens", "s", "Time from the grant of the token to the write.",
			quantiles("fencegate_rejected_token_age_seconds", `code="token_stale"`, "")...),
		chart("Early refusals", "wps", "From memory, without the database: persistent zombies.",
			q(`sum by (instance) (rate(fencegate_early_refusals_total{@}[#]))`, "{{instance}}")).wide(12),
		chart("Unrecorded rejections", "wps",
			"These writes were rejected; only their record is missing, since too many came at once.",
			q(`sum by (instance) (rate(fencegate_rejections_dropped_total{@}[#]))`, "{{instance}}")).wide(12),
	}
}

func tables() []panel {
	return []panel{
		stack("Rejected by SQL, by code", "wps", "By fence.guard and the triggers of protected tables, also where the "+
			"transaction was rolled back. In the mode observe the writes passed.",
			q(`max by (code, kind, mode) (rate(fencegate_sql_rejections_total{@}[#]))`, "{{code}} {{kind}} {{mode}}")),
		chart("Protected tables, by mode", "none", "observe only records what enforce rejects.",
			q(`max by (mode) (fencegate_protected_tables{@})`, "{{mode}}")),
		number("Tables with problems", "none", "The fence does not check all of their rows; `fencegate check` says why.",
			database("fencegate_protected_tables_with_problems{@}", ""), step{"green", 0}, step{"red", 1}).wide(8),
	}
}

func groupCommit() []panel {
	return []panel{
		chart("Commits", "s", "Time that a batch took in the database. Writes to fences that another transaction has locked "+
			"have a lane of their own.", quantiles("fencegate_write_commit_duration_seconds", "", "lane")...),
		chart("Writes in a batch", "none", "Grows with the load: the writes of a batch share the price of its commit.",
			q(`sum(rate(fencegate_write_batch_size_sum{@}[#])) / sum(rate(fencegate_write_batch_size_count{@}[#]))`, "mean")),
		chart("Batches in flight", "none", "All lanes together have at most --write-batches-max.",
			q(`sum by (instance, lane) (fencegate_write_batches_in_flight{@})`, "{{instance}} {{lane}}")),
		chart("Write queue", "none", "Writes that wait for a batch: normally near 0. If it grows, the database is too slow.",
			q(`fencegate_write_queue_writes{@}`, "{{instance}}")),
		chart("Refused by a full queue", "wps", "More load than the database can take.",
			q(`rate(fencegate_write_queue_refused_total{@}[#])`, "{{instance}}")),
		chart("Retries", "ops", "By the gateways, by reason; busy are fences that another transaction had locked.",
			q(`sum by (reason) (rate(fencegate_retries_total{@}[#]))`, "{{reason}}")),
	}
}

func databasePanels() []panel {
	connections := chart("Connections in use", "percentunit",
		"Of a gateway's limit (--database-connections-max). At 100 % statements wait.",
		q(`fencegate_database_connections{@,state="busy"} / ignoring(state) fencegate_database_connections{@,state="max"}`,
			"{{instance}}"))
	connections.max = 1
	return []panel{
		connections.wide(6),
		chart("Statements that waited for a connection", "ops", "If many: more connections, or a faster database.",
			q(`rate(fencegate_database_connection_waits_total{@}[#])`, "{{instance}}")).wide(6),
		chart("Failed statements, by reason", "ops", "connection: the database is unreachable; timeout: it is slow; "+
			"read_only: a standby; busy: a fence that another transaction kept locked.",
			q(`sum by (reason) (rate(fencegate_database_errors_total{@}[#]))`, "{{reason}}")).wide(6),
		chart("Oldest snapshot", "s", "While it is open, names that are written to often get slower with each write.",
			database("fencegate_database_oldest_snapshot_seconds{@}", "")).wide(6),
		number("Listening gateways", "none", "Gateways with a connection for notifications. "+
			"Without it waiters are served by polling, up to two seconds late.",
			q(`sum(fencegate_database_listening{@})`, "")).wide(4),
		number("Synchronous standbys", "none", "Standbys that confirm each commit.",
			database("fencegate_database_synchronous_standbys{@}", "")).wide(4),
		number("Synchronous standbys expected", "none", "Whether commits are configured to wait for one.",
			database("fencegate_database_synchronous_expected{@}", "")).
			is("0", "no").is("1", "yes").wide(4),
		number("Newest token", "none", "The greatest that was granted. "+
			"After a failover or a restart it jumps to 2^20 for each second since 2025.",
			database("fencegate_newest_token{@}", "")).wide(4),
		number("Token jumps", "none", "Failovers, restores and restarts: the database was found to be another one than before.",
			database("fencegate_token_jumps{@}", "")).wide(4),
		number("Reconnects", "none", "Lost connections for notifications, since the gateways started.",
			q(`sum(fencegate_listener_reconnects_total{@})`, "")).wide(4),
	}
}

func processes() []panel {
	versions := number("Versions", "none", "The versions of running gateways.",
		q(`count by (version) (fencegate_build_info{@})`, "{{version}}")).wide(8)
	versions.height, versions.names = 8, true
	return []panel{
		chart("CPU", "none", "Cores in use.", q(`rate(process_cpu_seconds_total{@}[#])`, "{{instance}}")),
		chart("Memory", "bytes", "Resident memory.", q(`process_resident_memory_bytes{@}`, "{{instance}}")),
		chart("Uptime", "s", "Time since the process started.",
			q(`time() - process_start_time_seconds{@}`, "{{instance}}")),
		chart("Goroutines", "none", "Grows and shrinks with waiters and streams.",
			q(`go_goroutines{@}`, "{{instance}}")),
		chart("Open files", "percentunit", "Of the process's limit: mostly connections.",
			q(`process_open_fds{@} / process_max_fds{@}`, "{{instance}}")),
		versions,
	}
}
