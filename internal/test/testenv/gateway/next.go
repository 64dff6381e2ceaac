package gateway

import (
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/migrations"
)

// NextVersion returns the files of a fencegate of the next version, for process.BuildWith. Its schema has another
// table, another column and another function, fence.next, than this one's, and a function that is changed.
func NextVersion(t testing.TB) map[string]string {
	t.Helper()
	revision := "GuardRevision = %d\n"
	return map[string]string{
		"migrations/embed.go": process.Changed(t, "migrations/embed.go", map[string]string{
			fmt.Sprintf(revision, migrations.GuardRevision): fmt.Sprintf(revision, migrations.GuardRevision+1)}),
		"migrations/999_next.sql": `create table fence.next (number bigint);
			alter table fence.fences add column next_number bigint;`,
		"migrations/guard/observe/gateway.sql": process.Changed(t, "migrations/guard/observe/gateway.sql", map[string]string{
			"    perform pg_logical_emit_message(": "    perform fence.next();\n    perform pg_logical_emit_message("}),
		"migrations/guard/observe/next.sql": `create or replace function fence.next() returns bigint language sql
			as 'select max(number) from fence.next';`,
	}
}
