// Package migrations holds everything that fencegate keeps in PostgreSQL besides data, and applies it.
//
// There are two kinds of SQL. Numbered files (001_schema.sql, …) make tables and types. They run once, in order, and
// are never edited after a release. Each file under guard/ has the functions of a subject, "create or replace", the one
// that others call first. They are applied again, all in one transaction, whenever [GuardRevision] has risen. The folders
// of guard/ are
//
//	rule     the decision about a write token, and what it needs: fences, tokens, policies
//	write    applying writes
//	lease    granting, renewing and ending leases
//	queue    waiters, their order, and deadlocks
//	session  sessions and the end of their leases
//	client   what applications call by SQL: guards and leases
//	table    the protection of users' tables
//	cluster  names of several databases, and their moves
//	access   keys of callers, names of SQL roles, and the record of administrators' actions
//	view     views, which are replaced like functions
//	observe  watches, rejections, samples, the inventory and the turns of the sweep
//
// Everything is in the schema "fence". schema.golden shows the result of both. It is embedded, too: Differences
// compares a database with it.
package migrations

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// GuardRevision numbers the functions under guard/. A release that changes them, or adds a numbered file, raises it by
	// one: a program replaces older functions by its own. A test fails until it is raised.
	GuardRevision = 1

	// servesFrom is the revision of the oldest program that can call these functions, and use these tables. So it can stay
	// while others are replaced, and be started again. A release may raise it to the revision of the one before, not
	// further. A function that such a program calls keeps its arguments and the columns of its result.
	servesFrom = 1

	// worksFrom is the oldest revision of functions that this program can call. So it can be started before the schema is
	// migrated. A statement that needs newer ones fails with ErrNotMigrated until then. No acquire, renewal, release, write,
	// read or session needs newer ones.
	worksFrom = 1
)

//go:embed *.sql
var numbered embed.FS

//go:embed guard/*/*.sql
var guard embed.FS

// control lets every role make the extension that may make a schema in the database. Its script then runs with the
// rights of that role, which owns all of it, so no function with the rights of its owner gets those of a superuser.
const control = `comment = 'Leases with fencing tokens, checked in PostgreSQL'
default_version = '%s'
schema = fence
relocatable = false
superuser = false
`

// membership makes the functions of protected tables members of the extension, or lets go of them: a script replaces
// members only. A dump has them because they are none. The argument is add or drop.
const membership = `do $$
declare
    v_function regprocedure;
begin
    for v_function in
        select oid from pg_proc where pronamespace = 'fence'::regnamespace and proname ~ '^check_[0-9]+_'
    loop
        execute format('alter extension fencegate %s function %%s', v_function);
    end loop;
end
$$;`

// dumped makes pg_dump keep what is in the tables, but those that the script fills, and the values of the sequences, but
// those that go with these tables.
const dumped = `do $$
declare
    v_relation oid;
begin
    for v_relation in
        select oid from pg_class
        where relnamespace = 'fence'::regnamespace
            and (relkind = 'S' and relname !~ '^(rejected|observed|jumped)' or relkind = 'r' and relname not in ('tables_version',
                'guard_revision', 'database_identity', 'rejected_by_sql', 'rejected_slots', 'sweeps', 'inventory', 'key_changes'))
    loop
        perform pg_extension_config_dump(v_relation, '');
    end loop;
end
$$;`

// unlikeDumped makes tokens jump before the first one, and gateways read the keys again: where a dump is restored into
// the new extension, or an extension was dropped before, they are others than this text has made.
const unlikeDumped = `update fence.database_identity set timeline = 0;
update fence.key_changes set changes = extract(epoch from clock_timestamp());`

// ExtensionFiles are the control file of the extension fencegate and its scripts, by their names. Its version is that of
// the schema and the revision of the functions. PostgreSQL goes from an older one to the version of its schema without a
// revision, by an empty script, and from there to the newest.
func ExtensionFiles() map[string]string {
	newest := len(numberedFiles())
	to := fmt.Sprintf("%d.%d", newest, GuardRevision)
	script := func(version int) string {
		return "\\echo Use \"create extension fencegate\" or \"alter extension fencegate update\". \\quit\n" +
			Script{Version: version, extension: true}.text()
	}
	files := map[string]string{
		"fencegate.control":                  fmt.Sprintf(control, to),
		fmt.Sprintf("fencegate--%s.sql", to): script(0),
	}
	for version := 1; version <= newest; version++ {
		files[fmt.Sprintf("fencegate--%d--%s.sql", version, to)] = script(version)
		for revision := 1; revision <= GuardRevision; revision++ {
			if from := fmt.Sprintf("%d.%d", version, revision); from != to {
				files[fmt.Sprintf("fencegate--%s--%d.sql", from, version)] = "-- The next script replaces the functions.\n"
			}
		}
	}
	return files
}

// WriteExtension writes the ExtensionFiles to a directory, which must exist.
func WriteExtension(dir string) (err error) {
	for name, text := range ExtensionFiles() {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) //nolint:gosec // the server reads them
	}
	return err
}
