package gateway

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// rejectionsCSV decodes a CSV of rejections into rows by column.
func rejectionsCSV(t testing.TB, got answer) []map[string]string {
	t.Helper()
	if kind := got.header.Get("Content-Type"); got.status != http.StatusOK || !strings.HasPrefix(kind, "text/csv") ||
		!strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
		t.Fatalf("%s: answered %d %q, want an attachment of CSV: %s", got.request, got.status, got.header, got.body)
	}
	rows, err := csv.NewReader(strings.NewReader(string(got.body))).ReadAll()
	if err != nil || len(rows) == 0 || !slices.Equal(rows[0], rejectionColumns) {
		t.Fatalf("%s: want the columns %q (%v), got %.1000s", got.request, rejectionColumns, err, got.body)
	}
	var found []map[string]string
	for _, row := range rows[1:] {
		cells := map[string]string{}
		for i, cell := range row {
			cells[rows[0][i]] = cell
		}
		found = append(found, cells)
	}
	return found
}

// The CSV has the fields of the list. The parameter format takes precedence over Accept.
func TestRejectionsAsCSV(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	expectProblem(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	expectProblem(t, h.putWith(t, "other"), api.CodeTokenRequired)
	r := h.rejections(t, "?resource=job").Rejections[0]
	for _, got := range []answer{
		h.get(t, "/v1/rejections?format=csv&resource=job"),
		h.get(t, "/v1/rejections?format=csv&code=token_stale&sort=last_seen", "Accept: application/json"),
		h.get(t, "/v1/rejections?owner_id=zombie", "Accept: text/html, text/csv;q=0.9"),
	} {
		rows := rejectionsCSV(t, got)
		if len(rows) != 1 {
			t.Fatalf("%s: there are %d rows, want one", got.request, len(rows))
		}
		want := fmt.Sprintf("%d job k token_stale superseded %d 5 %d %d zombie %d http 127.0.0.1 1",
			r.ID, zombie.FencingToken, current.FencingToken, current.FencingToken, value(r.LateMS))
		var cells []string
		for _, column := range strings.Fields("id resource key code reason token sequence superseded_by granted_token " +
			"owner_id late_ms source address count") {
			cells = append(cells, rows[0][column])
		}
		at, _ := r.LastAt.MarshalText()
		if text := strings.Join(cells, " "); text != want || rows[0]["last_at"] != string(at) {
			t.Errorf("%s: the row is %v, want %s and last_at %s", got.request, rows[0], want, at)
		}
	}
	for _, headers := range [][]string{{"Accept: text/csv, application/json"}, {"Accept: */*"},
		{"Accept: application/json"}, nil, {"Accept: ,;"}} {
		as[api.Rejections](t, h.get(t, "/v1/rejections", headers...), http.StatusOK)
	}
	as[api.Rejections](t, h.get(t, "/v1/rejections?format=json", "Accept: text/csv"), http.StatusOK)
}

// A text chosen by a client can't become a formula of a spreadsheet. Other texts are not changed.
func TestCSVHasNoFormulas(t *testing.T) {
	h := newHarness(t, Config{})
	for text, want := range map[string]string{
		"=cmd|'/C calc'!A0": "'=cmd|'/C calc'!A0", "+1": "'+1", "-1": "'-1", "@SUM(1)": "'@SUM(1)", "＝1": "'＝1", "a=1": "a=1",
		"a,b": "a,b", `"=1"`: `"=1"`, `a"b`: `a"b`, "ä\u2028b": "ä\u2028b", `'=1`: `'=1`,
		"<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
	} {
		lease := h.acquire(t, text, text)
		got := h.putKey(t, lease, 1, text, "x", `If-Match: "7"`)
		expectProblem(t, got, api.CodeVersionMismatch)
		h.record(t)
		rows := rejectionsCSV(t, h.get(t, "/v1/rejections?format=csv&resource="+url.QueryEscape(text)))
		if len(rows) != 1 || rows[0]["resource"] != want || rows[0]["key"] != want || rows[0]["owner_id"] != want {
			t.Errorf("%q is written as %q, want %q", text, rows, want)
		}
	}
	if got := harmless("\t=1") + harmless("\r=1") + harmless("\n=1") + harmless(""); got != "'\t=1'\r=1'\n=1" {
		t.Errorf("texts that begin with control characters are written as %q", got)
	}
}

// TestCSVRowsAreHarmless checks that no text of a row of any export can be a formula. The codes and the JSON of an audit
// log can't.
func TestCSVRowsAreHarmless(t *testing.T) {
	t.Parallel()
	const formula = "=1"
	for name, row := range map[string][]string{
		"rejection": rejectionRow(api.Rejection{
			Resource: formula, Key: formula, Reason: formula, OwnerID: formula, Source: formula, Address: formula,
			Principal: formula,
		}),
		"audit": auditRow(store.AuditEntry{Principal: formula, Address: formula, Name: formula}),
	} {
		if slices.Contains(row, formula) || !slices.Contains(row, "'"+formula) {
			t.Errorf("a row of the export %s is %q, want an apostrophe before each formula", name, row)
		}
	}
}

// A CSV of many parts has every group once.
func TestCSVOfManyParts(t *testing.T) {
	h := newHarness(t, Config{})
	const many = 3*csvRowsAtOnce + 1
	h.rejectGroups(t, many)
	for _, sort := range []string{"first_seen", "last_seen"} {
		rows := rejectionsCSV(t, h.get(t, "/v1/rejections?format=csv&prefix=jobs/&sort="+sort))
		found := map[string]bool{}
		for _, row := range rows {
			found[row["resource"]] = true
		}
		if len(rows) != many || len(found) != many {
			t.Errorf("by %s there are %d rows of %d resources, want %d", sort, len(rows), len(found), many)
		}
	}
}

// A CSV that fails after its beginning ends with an error.
func TestCSVBreaksOff(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newGateway(t, Config{}, patientDatabase(t))
		h.client = serve(t, h.gateway) // too much text for conforming
		h.http = newHTTPClient(t, http2)
		h.rejectGroups(t, 40*csvRowsAtOnce) // more than connections buffer
		response, err := h.http.Get(h.base + "/v1/rejections?format=csv")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		h.exec(t, "alter table fence.rejections rename to hidden")
		if text, err := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || err == nil {
			t.Errorf("the CSV ended without an error after %d bytes, status %d", len(text), response.StatusCode)
		}
		expectUnavailable(t, h.get(t, "/v1/rejections?format=csv"), api.OutcomeNotApplied)
		expectUnavailable(t, h.get(t, "/v1/rejections/summary"), api.OutcomeNotApplied)
	})
}
