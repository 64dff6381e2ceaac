package main

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
