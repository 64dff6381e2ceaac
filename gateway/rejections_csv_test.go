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
)

// rejectStories records that many rejections of unknown tokens, each a group.
func (h *harness) rejectStories(t *testing.T, groups int) {
	t.Helper()
	h.exec(t, `select count(*) from fence.record_rejections(
		(select array_agg('jobs/' || n) from generate_series(1, $1) n), array_fill('k'::text, array[$1]), array_fill('token_unknown'::text, array[$1]),
		array_fill(''::text, array[$1]), array_fill('http'::text, array[$1]), array_fill('192.0.2.1'::text, array[$1]),
		array_fill(7::bigint, array[$1]), array_fill(null::bigint, array[$1]), array_fill(0::bigint, array[$1]), array_fill(0::bigint, array[$1]),
		array_fill(0::bigint, array[$1]), array_fill(1::bigint, array[$1]), array_fill(clock_timestamp(), array[$1]), array_fill(clock_timestamp(), array[$1]))`,
		groups)
}

// rejectionsCSV reads a CSV of rejections: the rows after the names.
func rejectionsCSV(t *testing.T, got answer) []map[string]string {
	t.Helper()
	if kind := got.header.Get("Content-Type"); got.status != http.StatusOK || !strings.HasPrefix(kind, "text/csv") ||
		!strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
		t.Fatalf("%s: answered %d %q: %s", got.request, got.status, got.header, got.body)
	}
	rows, err := csv.NewReader(strings.NewReader(string(got.body))).ReadAll()
	if err != nil || len(rows) == 0 || !slices.Equal(rows[0], rejectionColumns) {
		t.Fatalf("%s: %v: %.1000s", got.request, err, got.body)
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

// The CSV has what the list has.
func TestRejectionsAsCSV(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	refused(t, h.put(t, zombie, 5, "late"), api.CodeTokenStale)
	refused(t, h.send(t, http.MethodPut, recordPath("other", "k"), "x"), api.CodeTokenRequired)
	listed := h.rejections(t, "?resource=job").Rejections
	for _, got := range []answer{
		h.get(t, "/v1/rejections?format=csv&resource=job"),
		h.get(t, "/v1/rejections?format=csv&code=token_stale&sort=last_seen", "Accept: application/json"),
		h.get(t, "/v1/rejections?owner_id=zombie", "Accept: text/html, text/csv;q=0.9"),
	} {
		rows := rejectionsCSV(t, got)
		if len(rows) != 1 || len(listed) != 1 {
			t.Fatalf("%s: there are %d rows, want one like %+v", got.request, len(rows), listed)
		}
		row, r := rows[0], listed[0]
		want := fmt.Sprintf("%d job k token_stale superseded %d 5 %d %d zombie %d http 127.0.0.1 1", r.ID, zombie.FencingToken, current.FencingToken, current.FencingToken, value(r.LateMS))
		text := strings.Join([]string{row["id"], row["resource"], row["key"], row["code"], row["reason"], row["token"], row["sequence"], row["superseded_by"],
			row["granted_token"], row["owner_id"], row["late_ms"], row["source"], row["address"], row["count"]}, " ")
		at, _ := r.LastAt.MarshalText()
		if text != want || row["last_at"] != string(at) {
			t.Errorf("%s: the row is %v, want %s", got.request, row, want)
		}
	}
	for _, headers := range [][]string{{"Accept: text/csv, application/json"}, {"Accept: */*"}, {"Accept: application/json"}, nil, {"Accept: ,;"}} {
		as[api.Rejections](t, h.get(t, "/v1/rejections", headers...), http.StatusOK)
	}
	as[api.Rejections](t, h.get(t, "/v1/rejections?format=json", "Accept: text/csv"), http.StatusOK)
}

// What others chose can't become a formula, and what is not one stays as it is.
func TestCSVIsHarmless(t *testing.T) {
	h := newHarness(t, Config{})
	for text, want := range map[string]string{
		"=cmd|'/C calc'!A0": "'=cmd|'/C calc'!A0", "+1": "'+1", "-1": "'-1", "@SUM(1)": "'@SUM(1)", "＝1": "'＝1", "a=1": "a=1", "a,b": "a,b", `"=1"`: `"=1"`,
		`a"b`: `a"b`, "ä\u2028b": "ä\u2028b", `'=1`: `'=1`, "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
	} {
		lease := h.acquire(t, text, text)
		refused(t, h.send(t, http.MethodPut, recordPath(text, text), "x", token(lease, 1), `If-Match: "7"`), api.CodeVersionMismatch)
		if err := h.recordNow(t); err != nil {
			t.Fatal(err)
		}
		rows := rejectionsCSV(t, h.get(t, "/v1/rejections?format=csv&resource="+url.QueryEscape(text)))
		if len(rows) != 1 || rows[0]["resource"] != want || rows[0]["key"] != want || rows[0]["owner_id"] != want {
			t.Errorf("%q is written as %q, want %q", text, rows, want)
		}
	}
	if got := harmless("\t=1") + harmless("\r=1") + harmless("\n=1") + harmless(""); got != "'\t=1'\r=1'\n=1" {
		t.Errorf("control characters: %q", got)
	}
}

// All that match are in it, each once, over many parts.
func TestCSVOfMany(t *testing.T) {
	h := newHarness(t, Config{})
	const many = 3*csvRowsAtOnce + 1
	h.rejectStories(t, many)
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

// A CSV that can't be read to its end does not pass for a whole one.
func TestCSVBreaksOff(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		h.rejectStories(t, 40*csvRowsAtOnce) // more than connections hold
		response, err := h.http.Get(h.base + "/v1/rejections?format=csv")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		h.exec(t, "alter table fence.rejections rename to hidden")
		if text, err := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || err == nil {
			t.Errorf("it ended as if it were whole, after %d bytes", len(text))
		}
		unavailable(t, h.get(t, "/v1/rejections?format=csv"), api.OutcomeNotApplied)
		unavailable(t, h.get(t, "/v1/rejections/summary"), api.OutcomeNotApplied)
	}
}
