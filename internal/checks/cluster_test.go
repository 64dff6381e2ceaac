package checks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// TestCheckCluster brings a coordinator and its two nodes into states in which names have no node, or are still to move.
func TestCheckCluster(t *testing.T) {
	t.Parallel()
	names := []string{"coordinator", "1", "2"}
	databases := map[string]*pgx.Conn{}
	for _, name := range names {
		conn, err := pgx.Connect(t.Context(), postgres.Migrated(t))
		check(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		databases[name] = conn
	}
	do := func(on, sql string) {
		t.Helper()
		_, err := databases[on].Exec(t.Context(), sql)
		check(t, err)
	}
	do("coordinator", `create schema fencegate;
		create function fencegate.placements() returns table (first bigint, last bigint, node text, address text)
		language sql as 'values (-2147483648::bigint, -1::bigint, ''1'', ''a:5432''), (0, 2147483647, ''2'', ''b:5432'')'`)
	node := func(name, address string) checks.Node {
		return checks.Node{Name: name, Address: address, Conn: databases[name]}
	}
	nodes := []checks.Node{node("1", "a:5432"), node("2", "b:5432")}
	found := func() string {
		t.Helper()
		findings, err := checks.Cluster(await.Context(t), node("coordinator", ""), nodes, checks.OfRows)
		check(t, err)
		var text []string
		for _, f := range findings {
			if f.State != checks.OK {
				text = append(text, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Check, f.Subject, f.Detail))
			}
		}
		return strings.Join(text, "\n")
	}
	for _, step := range []struct{ on, sql, want string }{
		{"1", "select 1", "error cluster_names fence.ranges: names with the hashes -2147483648 to 2147483647 have no node"},
		{"1", "insert into fence.ranges (first, last) values (-2147483648, -1)",
			"error cluster_names fence.ranges: names with the hashes 0 to 2147483647 have no node"},
		{"coordinator", "insert into fence.ranges (first, last) values (5, 2147483647)",
			"error cluster_names fence.ranges: names with the hashes 0 to 4 have no node\n" +
				"warning cluster_moves fence.ranges: 50.0 % of the hashes of names are still to move"},
		{"coordinator", "update fence.ranges set first = -2", "error cluster_names fence.ranges: names with the hashes -2 to -1 are " +
			"at node 1 and at node coordinator\nwarning cluster_moves fence.ranges: 50.0 % of the hashes of names are still to move"},
		{"coordinator", "update fence.ranges set first = 0, moves_to = '2'",
			"warning cluster_moves fence.ranges: 50.0 % of the hashes of names are still to move"},
		{"coordinator", "update fence.ranges set sent = true", "error cluster_names fence.ranges: names with the hashes 0 to 2147483647 have no node"},
		{"2", "insert into fence.ranges (first, last) values (0, 2147483647)", ""},
		{"coordinator", "delete from fence.ranges", ""},
		{"2", "insert into fence.policies (prefix) values ('a')",
			"error cluster_policies b:5432: its policies are not those of the coordinator"},
		{"2", "update fence.policies set prefix = 'b'; insert into fence.fences (resource, granted_token) values ('x', 999999999999999)",
			"error tokens_behind b:5432 fence.tokens: continues after"},
	} {
		do(step.on, step.sql)
		if got := found(); got != step.want && (step.want == "" || !strings.HasPrefix(got, step.want)) {
			t.Errorf("after %s at %s:\n%s\nwant\n%s", step.sql, step.on, got, step.want)
		}
	}
	nodes[0].Conn, nodes[0].Failed = nil, errors.New("connection refused")
	if got := found(); !strings.HasPrefix(got, "error cluster_node a:5432: connection refused\n") || strings.Contains(got, "cluster_names") {
		t.Errorf("without a node:\n%s", got)
	}
}
