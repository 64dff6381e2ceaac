package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestSegments checks the segment of each value, that it is valid in a name, and that the triggers compute the same.
func TestSegments(t *testing.T) {
	t.Parallel()
	conn := connect(t, scripted(t, ""))
	exec(t, conn, `
		create domain code as varchar; create domain shortcode as code check (length(value) < 1000);
		create table texts (a text, b varchar(600), c shortcode);
		select fence.protect('texts', 'texts/{a}/{b}/{c}', 'observe');
		create table parts (a text, n integer) partition by list (n); create table part partition of parts default;
		select fence.protect('parts', 'parts/{a}', 'observe')`)
	seen := map[string]string{}
	for value, want := range map[string]string{
		"": "%empty", ".": "%2E", "..": "%2E%2E", "...": "...", "/": "%2F", "%": "%25", "%null": "%25null",
		"%empty": "%25empty", "%2E": "%252E", "a/b/../c": "a%2Fb%2F..%2Fc", "a b": "a b", " ": " ", "\t\n\r": "%09%0A%0D",
		"\x01\x1f\x7f": "%01%1F%7F", "\u0080\u009f\u00a0": "%C2%80%C2%9F\u00a0", "größe": "größe", "日本/語": "日本%2F語",
		"😀%": "😀%25", "é": "é", "e\u0301": "e\u0301", `\`: `\`, `'"`: `'"`, "{a}": "{a}", "$body$": "$body$",
		strings.Repeat("x", 160): strings.Repeat("x", 160),
	} {
		var got string
		var valid bool
		err := conn.QueryRow(t.Context(), "select s, fence.is_name('x/' || left(s, 500)) from fence.segment($1) s", value).
			Scan(&got, &valid)
		if err != nil || got != want || !valid {
			t.Errorf("the segment of %q is %q (valid: %v, %v), want %q", value, got, valid, err, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have the same segment", value, other)
		}
		seen[got] = value
		expectReported(t, conn, fmt.Sprintf("texts/%[1]s/%[1]s/%[1]s", want), "insert into texts values ($1::text, $1::text, $1::text)", value)
		expectReported(t, conn, "parts/"+want, "insert into parts values ($1::text, 0)", value)
	}
	expectReported(t, conn, "texts/%null/%null/%null", "insert into texts values ($1::text, $1::text, $1::text)", nil)
	var null string
	if err := conn.QueryRow(t.Context(), "select fence.segment(null)").Scan(&null); err != nil || null != "%null" {
		t.Errorf("the segment of null is %q (%v)", null, err)
	}
}

// expectReported runs a statement that must report one rejection, for the resource.
func expectReported(t *testing.T, conn *pgx.Conn, resource, sql string, value any) {
	t.Helper()
	exec(t, conn, "truncate fence.reported")
	exec(t, conn, sql, value)
	var got []string
	err := conn.QueryRow(t.Context(), "select array_agg(resource) from fence.reported").Scan(&got)
	if err != nil || len(got) != 1 || got[0] != resource {
		t.Errorf("%s with %q: the reported resources are %q (%v), want %q", sql, value, got, err, resource)
	}
}
