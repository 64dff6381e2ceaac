package main

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// TestMigrateNames checks that migrate restricts the roles on its command line to names, that they keep these when it
// gives them their rights again, and that check shows them.
func TestMigrateNames(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	role := conn.Config().Database + ` App "1"=2`
	quoted := pgx.Identifier{role}.Sanitize()
	_, err = conn.Exec(t.Context(), "create role "+quoted)
	check(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop owned by "+quoted+"; drop role "+quoted)
		check(t, err)
		check(t, conn.Close(context.Background()))
	})

	s := shell{t: t}
	migrate := []string{"migrate", "--database-url", database, "--log-level", "warn"}
	s.fails(exitUsage, "--app-names needs --app-role", append(migrate, "--app-names", "a")...)
	migrate = append(migrate, "--app-role", role)
	s.fails(exitFailure, "it must be a name", append(migrate, "--app-names", "a//b")...)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, "all names"},
		{[]string{"--app-names", "a,b=c", "--app-names", "tenants/7"}, "a,b=c, tenants/7, and all names below"},
		{nil, "a,b=c, tenants/7, and all names below"},
		{[]string{"--app-names", ""}, "all names"},
	} {
		s.must(append(migrate, c.flags...)...)
		if out := s.do("check", "--database-url", database).out; !strings.Contains(out, role+": may use "+c.want+"  ") {
			t.Errorf("after migrate %q, check found %s, want that the role may use %s", c.flags, out, c.want)
		}
	}
}
