package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// TestMigrateRoles checks that migrate gives the roles on its command line their rights, and names a role that does not
// exist.
func TestMigrateRoles(t *testing.T) {
	t.Parallel()
	database := pgtest.Migrated(t)
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	role := conn.Config().Database + ` App "1", 2`
	quoted := pgx.Identifier{role}.Sanitize()
	_, err = conn.Exec(t.Context(), "create role "+quoted)
	check(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop owned by "+quoted+"; drop role "+quoted)
		check(t, err)
		check(t, conn.Close(context.Background()))
	})

	s := shell{t: t}
	migrate := []string{"migrate", "--database-url", database, "--log-level", "warn", "--app-role", role}
	s.fails(exitFailure, `create role "nobody"`, append(migrate, "--app-role", "nobody")...)
	granted := func() (acquire, protect bool) {
		check(t, conn.QueryRow(t.Context(), `
			select has_schema_privilege(r.oid, 'fence', 'usage') and has_function_privilege(r.oid, a.oid, 'execute'),
				has_function_privilege(r.oid, p.oid, 'execute')
			from pg_roles r, pg_proc a, pg_proc p
			where r.rolname = $1 and a.proname = 'acquire' and p.proname = 'protect'`, role).Scan(&acquire, &protect))
		return acquire, protect
	}
	if acquire, protect := granted(); acquire || protect {
		t.Error("a migrate that failed has granted rights")
	}
	s.must(migrate...)
	if acquire, protect := granted(); !acquire || protect {
		t.Errorf("with --app-role, the role may acquire: %v, protect: %v", acquire, protect)
	}
	s.must(append(migrate, "--table-owner-role", role)...)
	if acquire, protect := granted(); !acquire || !protect {
		t.Errorf("with --table-owner-role, the role may acquire: %v, protect: %v", acquire, protect)
	}
}
