package migrations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

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
