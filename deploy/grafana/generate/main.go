// Command generate writes the Grafana dashboards in deploy/grafana/dashboards. Run it from the root of the repository:
// go run ./deploy/grafana/generate. overview.go and locks.go have the content, dashboard.go and panel.go the layout.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	to := flag.String("to", "deploy/grafana/dashboards", "directory to write to")
	flag.Parse()
	for _, dashboard := range []dashboard{overview(), locks()} {
		text, err := dashboard.render()
		if err == nil {
			path := filepath.Join(*to, dashboard.file)
			err = os.WriteFile(path, text, 0o644) //nolint:gosec // Grafana reads them as another user
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

// render returns the dashboard's JSON. It has a line for each panel, so a diff shows the panels that changed.
func (d dashboard) render() ([]byte, error) {
	text, err := encode(d.model())
	if err != nil {
		return nil, err
	}
	var lines [][]byte
	for _, panel := range d.panels() {
		line, err := encode(panel)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	page, panels := bytes.TrimSuffix(text, []byte("}")), bytes.Join(lines, []byte(",\n"))
	return fmt.Appendf(nil, "%s,\"panels\":[\n%s\n]}\n", page, panels), nil
}

// encode returns JSON on one line. PromQL's comparisons stay as they are written.
func encode(model object) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(model)
	return bytes.TrimSpace(text.Bytes()), err
}

// object is a part of a dashboard's JSON.
type object map[string]any

// dashboard is a page of rows, from top to bottom.
type dashboard struct {
	file, uid, title, description string
	rows                          []row
}

// row is a heading and panels from left to right, as many on a line as fit.
type row struct {
	title  string
	panels []panel
}

// schemaVersion is Grafana 12's.
const schemaVersion = 41

// columns is the width of a line, in units.
const columns = 24

// source is the data source chosen at the top of the page.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// model returns the page without its panels.
func (d dashboard) model() object {
	return object{
		"uid": d.uid, "title": d.title, "description": d.description, "tags": []string{"fencegate"},
		"schemaVersion": schemaVersion, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "5s", "timezone": "",
		"time":        object{"from": "now-15m", "to": "now"},
		"timepicker":  object{},
		"templating":  object{"list": variables()},
		"annotations": object{"list": []object{alerts()}},
		"links": []object{{
			"type": "dashboards", "title": "fencegate", "tags": []string{"fencegate"},
			"asDropdown": false, "includeVars": true, "keepTime": true,
		}},
	}
}

// panels positions all panels. A heading is one unit high.
func (d dashboard) panels() []object {
	var placed []object
	id, y := 0, 0
	place := func(model object, x, width, height int) {
		id++
		model["id"], model["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		placed = append(placed, model)
	}
	for _, row := range d.rows {
		place(object{"type": "row", "title": row.title, "collapsed": false, "panels": []object{}}, 0, columns, 1)
		y++
		x, height := 0, 0
		for _, panel := range row.panels {
			if x+panel.width > columns {
				x, y, height = 0, y+height, 0
			}
			place(panel.model(), x, panel.width, panel.height)
			x, height = x+panel.width, max(height, panel.height)
		}
		y += height
	}
	return placed
}

// variables are the choices at the top of the page.
func variables() []object {
	labels := func(name, label, query string, many bool) object {
		variable := object{
			"type": "query", "name": name, "label": label, "datasource": source, "definition": query,
			"query":   object{"query": query, "refId": name, "qryType": 1},
			"refresh": 2, "sort": 1, "multi": many, "includeAll": many, "options": []object{},
		}
		if many {
			variable["allValue"] = ".*"
			variable["current"] = object{"text": "All", "value": "$__all"}
		}
		return variable
	}
	return []object{
		{
			"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus",
			"options": []object{}, "refresh": 1,
		},
		labels("job", "Job", "label_values(fencegate_build_info, job)", false),
		labels("instance", "Gateways", `label_values(fencegate_build_info{job="$job"}, instance)`, true),
	}
}

// alerts marks the times at which alerts fired.
func alerts() object {
	return object{
		"name": "Alerts", "enable": true, "iconColor": "red", "datasource": source,
		"expr":        `ALERTS{alertname=~"Fencegate.+",alertstate="firing"}`,
		"titleFormat": "{{alertname}}", "textFormat": "{{instance}}", "step": "10s",
	}
}

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
