package main

import (
	"fmt"
	"strings"
)

// panel is a chart, or a number.
type panel struct {
	title, description string
	unit               string
	queries            []query
	width, height      int
	number             bool // a stat, otherwise a chart over time
	stacked            bool
	names              bool    // a number that shows its name instead
	steps              []step  // colours from a value up
	max                float64 // of the axis; 0: automatic
	mappings           map[string]string
}

type query struct{ expr, legend string }

// step is a colour from a value up.
type step struct {
	colour string
	from   float64
}

// q is a query. @ means the chosen gateways, # the window of rates.
func q(expr, legend string) query {
	replacer := strings.NewReplacer("@", `job="$job",instance=~"$instance"`, "#", "$__rate_interval")
	return query{replacer.Replace(expr), legend}
}

// database is a query for a metric of the whole database, which all gateways export alike.
func database(metric, legend string) query { return q(fmt.Sprintf("max(%s)", metric), legend) }

// quantiles are the median and the 99th percentile of a histogram, by labels if there are any.
func quantiles(metric, labels, by string) []query {
	legend := ""
	if by != "" {
		legend = "{{" + by + "}} "
	}
	var queries []query
	for _, quantile := range []struct{ value, name string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		queries = append(queries, q(fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket{%s}[#])))",
			quantile.value, strings.Trim("le, "+by, ", "), metric, strings.Trim("@,"+labels, ",")), legend+quantile.name))
	}
	return queries
}

func chart(title, unit, description string, queries ...query) panel {
	return panel{title: title, unit: unit, description: description, queries: queries, width: 8, height: 8}
}

func stack(title, unit, description string, queries ...query) panel {
	p := chart(title, unit, description, queries...)
	p.stacked = true
	return p
}

func number(title, unit, description string, of query, steps ...step) panel {
	return panel{
		title: title, unit: unit, description: description, queries: []query{of},
		width: 3, height: 4, number: true, steps: steps,
	}
}

// is gives a value of a number a name.
func (p panel) is(value, name string) panel {
	if p.mappings == nil {
		p.mappings = map[string]string{}
	}
	p.mappings[value] = name
	return p
}

func (p panel) wide(width int) panel {
	p.width = width
	return p
}

func (p panel) model() object {
	var targets []object
	for i, query := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code",
			"expr": query.expr, "legendFormat": query.legend, "range": !p.number, "instant": p.number,
		})
	}
	kind, options := "timeseries", object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	if p.number {
		text := "auto"
		if p.names {
			text = "name"
		}
		kind, options = "stat", object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "none", "justifyMode": "auto", "textMode": text,
			"orientation": "auto", "wideLayout": true,
		}
	}
	return object{
		"type": kind, "title": p.title, "description": p.description, "datasource": source,
		"targets": targets, "options": options, "fieldConfig": object{"defaults": p.defaults(), "overrides": []object{}},
	}
}

// defaults returns the formatting of values.
func (p panel) defaults() object {
	defaults := object{"unit": p.unit, "min": 0, "color": object{"mode": "palette-classic"}}
	if p.max > 0 {
		defaults["max"] = p.max
	}
	if p.number {
		defaults["color"] = object{"mode": "thresholds"}
		steps := []object{{"color": "text", "value": nil}}
		for _, step := range p.steps {
			steps = append(steps, object{"color": step.colour, "value": step.from})
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
		names := object{}
		for value, name := range p.mappings {
			names[value] = object{"text": name, "index": len(name)}
		}
		defaults["mappings"] = []object{{"type": "value", "options": names}}
		return defaults
	}
	stacking, fill := "none", 5
	if p.stacked {
		stacking, fill = "normal", 40
	}
	defaults["custom"] = object{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "spanNulls": false,
		"stacking": object{"mode": stacking, "group": "A"},
	}
	return defaults
}
