package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/printable"
)

// table is what a panel shows: a row for each item that the filter lets through.
type table struct {
	columns []column
	rows    [][]string
	items   []any
	// empty is shown instead of no rows.
	empty string
}

func (t *table) add(v View, item any, cells []string) {
	if matches(v.Filter, cells) {
		t.rows, t.items = append(t.rows, cells), append(t.items, item)
	}
}

// matches reports whether a cell has the filter in it, in whatever case.
func matches(filter string, cells []string) bool {
	return slices.ContainsFunc(cells, func(cell string) bool {
		return strings.Contains(strings.ToLower(cell), strings.ToLower(filter))
	})
}

func tableOf(v View, panel Panel) table {
	var t table
	switch panel {
	case PanelRejections:
		t.columns, t.empty = rejectionColumns, "No write was rejected so far. `fencegate demo zombie` shows one."
		for _, r := range v.Rejections {
			t.add(v, r, rejectionRow(v.Overview.At.Time, r))
		}
	case PanelLocks:
		t.columns, t.empty = lockColumns, "No lock is held or waited for."
		for _, l := range v.Locks {
			t.add(v, l, lockRow(v.Overview.At.Time, l))
		}
	case PanelGateways:
		t.columns, t.empty = gatewayColumns, "No gateway is known yet."
		for _, g := range v.Overview.Gateways {
			t.add(v, g, gatewayRow(v.Overview.At.Time, g))
		}
	}
	switch {
	case v.Overview.Database.State == api.DatabaseUnavailable:
		t.empty = "Not known while the database is away."
	case v.Filter != "":
		t.empty = "No row has " + strconv.Quote(v.Filter) + " in it."
	}
	return t
}

// panelLines draws a table, its headings first; one line that says so where it is empty.
func panelLines(p painter, v View, panel Panel) []string {
	t := tableOf(v, panel)
	if len(t.rows) == 0 {
		return []string{p.paint(dim, t.empty)}
	}
	return lines(p, t.columns, t.rows, v.Width)
}

var rejectionColumns = []column{
	{heading: "SEEN", right: true, most: 12}, {heading: "RESOURCE", most: 40, shrink: true},
	{heading: "KEY", most: 24, shrink: true, optional: true},
	{heading: "CODE", most: 28, shrink: true}, {heading: "TOKEN", right: true, most: 20},
	{heading: "NEWER", right: true, most: 16, optional: true},
	{heading: "LATE", right: true, most: 12}, {heading: "OWNER", most: 28, shrink: true},
	{heading: "SOURCE", most: 11, optional: true}, {heading: "COUNT", right: true, most: 13},
}

func rejectionRow(now time.Time, r api.Rejection) []string {
	code, presented, newer, late := string(r.Code), "", "", ""
	if r.Reason != "" {
		code += "/" + r.Reason
	}
	if r.Token != nil {
		presented = api.FencingToken{Token: *r.Token, Sequence: r.Sequence}.String()
	}
	if r.SupersededBy != nil {
		newer = strconv.FormatInt(*r.SupersededBy, 10)
	}
	if r.LateMS != nil {
		late = span(milliseconds(*r.LateMS))
	}
	return row(ago(now, r.LastAt.Time), r.Resource, r.Key, code, presented, newer, late, r.OwnerID, r.Source,
		count(r.Count))
}

var lockColumns = []column{
	{heading: "LOCK", most: 48, shrink: true}, {heading: "STATE", most: 8}, {heading: "TOKEN", right: true, most: 16},
	{heading: "HOLDER", most: 32, shrink: true},
	{heading: "LEFT", right: true, most: 12}, {heading: "WAITING", right: true, most: 9},
	{heading: "NEXT", most: 28, shrink: true, optional: true},
}

func lockRow(now time.Time, l api.Lock) []string {
	holder, left, next := "", "", ""
	if len(l.Holders) > 0 {
		holder, left = l.Holders[0].OwnerID, span(l.Holders[0].ExpiresAt.Sub(now))
	}
	if len(l.Holders) > 1 {
		holder += fmt.Sprintf(" and %d more", len(l.Holders)-1)
	}
	if len(l.Queue) > 0 {
		next = l.Queue[0].OwnerID
	}
	return row(l.Lock, l.State, strconv.FormatInt(l.FencingToken, 10), holder, left,
		strconv.FormatInt(l.QueueLength, 10), next)
}

var gatewayColumns = []column{
	{heading: "GATEWAY", most: 40, shrink: true}, {heading: "STATE", most: 8}, {heading: "SEEN", right: true, most: 12},
	{heading: "UP", right: true, most: 12, optional: true},
	{heading: "VERSION", most: 24, shrink: true, optional: true}, {heading: "WAITING", right: true, most: 9},
	{heading: "STREAMS", right: true, most: 9, optional: true},
	{heading: "QUEUE", right: true, most: 9, optional: true}, {heading: "CONNECTIONS", right: true, most: 11},
	{heading: "LISTENING", most: 9, optional: true},
}

func gatewayRow(now time.Time, g api.OverviewGateway) []string {
	listening := "no"
	if g.Listening {
		listening = "yes"
	}
	return row(g.Name, g.State, ago(now, g.SeenAt.Time), span(now.Sub(g.StartedAt.Time).Round(time.Second)), g.Version,
		count(g.Waiting), count(g.Streams),
		count(g.Queue), fmt.Sprintf("%d/%d", g.ConnectionsBusy, g.ConnectionsMax), listening)
}

// ago is how long before now it was, in whole seconds. Smaller differences of clocks don't matter, and greater ones
// can't be corrected here.
func ago(now, then time.Time) string {
	since := now.Sub(then).Round(time.Second)
	if since <= 0 {
		return "now"
	}
	return span(since)
}

// row is made of texts that may be drawn; a dash is one that is empty.
func row(texts ...string) []string {
	for i, text := range texts {
		if texts[i] = printable.Text(text); text == "" {
			texts[i] = "-"
		}
	}
	return texts
}
