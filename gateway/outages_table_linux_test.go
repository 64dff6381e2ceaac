package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store/readiness"
)

// outages are met by one gateway, one after the other. What became known of each is a row of a table.
type outages struct {
	*harness

	cluster *postgres.Cluster
	lease   api.Lease
	written int64             // with this lease
	wait    map[string]string // of each alert, in alerts.yml
	rows    []string
}

// outage is something that keeps the database from taking commits.
type outage struct {
	reason     readiness.Reason
	why        string // is in the detail of /readyz
	begin, end func(t *testing.T)
	meanwhile  func(t *testing.T) // nil: nothing more
	alerts     []string           // beside those of each outage
}

// meet lets an outage begin and end, and notes what became known of it.
func (o *outages) meet(t *testing.T, met outage) {
	t.Helper()
	before, _ := o.scrape(t)
	begun := time.Now()
	met.begin(t)
	o.awaitNotReady(t, met.reason, met.why)
	seen := time.Since(begun)
	asked := time.Now()
	o.ready(t)
	answered := time.Since(asked)
	o.expectOutage(t, met.reason)

	sent := time.Now()
	o.written++
	write := func() answer { return o.put(t, o.lease, o.written, "x") }
	refused := write()
	outcome := expectProblem(t, refused, api.CodeUnavailable).Outcome
	ended := time.Since(sent)
	after, _ := o.scrape(t)
	if met.meanwhile != nil {
		met.meanwhile(t)
	}

	met.end(t)
	healed := time.Now()
	o.awaitReady(t)
	ready := time.Since(healed)
	o.expectOutage(t, "")
	if got := insist(t, write); got.status != http.StatusCreated && got.status != http.StatusOK {
		t.Errorf("the write that was unavailable, sent again, is answered %d: %s", got.status, got.body)
	}
	_, name, _ := strings.Cut(t.Name(), "/")
	o.rows = append(o.rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s after %s\t%s\t%s\t%s", name, met.reason, short(seen),
		short(answered), outcome, short(ended), short(ready), strings.Join(changed(before, after), ", "), o.alerts(t, met)))
}

func short(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }

// changed are the metrics of the database, as this gateway sees it, that an outage has moved.
func changed(before, after scraped) (names []string) {
	for _, name := range []string{"fencegate_database_up", "fencegate_database_listening"} {
		if is := after.value(name); is != before.value(name) {
			names = append(names, fmt.Sprintf("%s %v", name, is))
		}
	}
	for _, family := range []string{"fencegate_not_ready", "fencegate_database_errors_total",
		"fencegate_database_went_back_total"} {
		for _, metric := range after[family].GetMetric() {
			label := metric.GetLabel()[0]
			if reading(metric) != before.value(family, label.GetName(), label.GetValue()) {
				names = append(names, fmt.Sprintf("%s{%s}", family, label.GetValue()))
			}
		}
	}
	return names
}

// alertWaits reads how long each alert waits before it fires.
func alertWaits(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string]string{}
	var alert string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "- alert":
			alert = value
		case "for":
			waits[alert] = cmp.Or(waits[alert], value)
		}
	}
	return waits
}

// alerts are those that fire in an outage, with how long they wait.
func (o *outages) alerts(t *testing.T, met outage) string {
	t.Helper()
	var all []string
	for _, name := range append(met.alerts, "FencegateNotReady", "FencegateDatabaseUnavailable") {
		if o.wait[name] == "" {
			t.Errorf("there is no alert %s", name)
		}
		all = append(all, name+" "+o.wait[name])
	}
	return strings.Join(all, ", ")
}

// show logs the table.
func (o *outages) show(t *testing.T) {
	t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "OUTAGE\tREASON\tSEEN AFTER\t/readyz IN\tA WRITE\tREADY AGAIN\tMETRICS\tALERTS, FOR")
	for _, row := range o.rows {
		_, _ = fmt.Fprintln(table, row)
	}
	_ = table.Flush()
	t.Log("\n" + text.String())
}
