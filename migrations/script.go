package migrations

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// piece is a part of the text that makes the schema. The name says where it is from.
type piece struct{ name, sql string }

// suitable rejects databases that cannot store every name unchanged, and servers that are too old for the functions.
const suitable = `do $$
begin
    if current_setting('server_encoding') <> 'UTF8' then
        raise exception 'its encoding is %; create one with encoding UTF8', current_setting('server_encoding')
            using errcode = 'feature_not_supported';
    elsif current_setting('server_version_num')::integer < 140000 then
        raise exception 'PostgreSQL % is too old; 14 or newer is needed', current_setting('server_version')
            using errcode = 'feature_not_supported';
    end if;
end
$$;`

// begin fails outside of a transaction, where the settings would have no effect, and for another schema than the one
// that the text was made for. Its arguments: the advisory lock, the version, the revision, the digest of all functions.
const begin = `lock table pg_catalog.pg_namespace in access share mode;
do $$
declare
    v_version integer;
begin
    perform pg_advisory_xact_lock(%d);
    if to_regclass('` + versionTable + `') is not null then
        v_version := (select v.version from ` + versionTable + ` v);
    end if;
    if coalesce(v_version, 0) <> %[2]d then
        raise exception 'the schema fence has version %%, and this text is for version %[2]d', coalesce(v_version, 0)
            using hint = '0 is no schema; fencegate migrate --print --from VERSION prints the text for another one.',
                errcode = 'object_not_in_prerequisite_state';
    end if;
    if to_regclass('fence.guard_revision') is not null then
        perform from fence.guard_revision g
        where g.revision > %[3]d or g.revision = %[3]d and g.digest <> '%[4]s';
        if found then
            raise exception 'the schema fence has newer functions than revision %[3]d, or others of that revision'
                using errcode = 'object_not_in_prerequisite_state';
        end if;
    end if;
end
$$;`

// settings bound the waits for locks. With other settings of how SQL is parsed, a pattern in the schema could lose its
// backslashes. Bodies of functions are checked when they first run, so the files need no order. Citus must not carry what is
// made to its other nodes, each of which has a schema of its own; without Citus, its setting means nothing.
const settings = `set local lock_timeout = %d;
set local standard_conforming_strings = on;
set local transform_null_equals = off;
set local check_function_bodies = off;
set local citus.enable_ddl_propagation = off;`

const versions = `create table if not exists ` + versionTable + ` (version int4 primary key);
insert into ` + versionTable + ` select 0 where not exists (select from ` + versionTable + `);`

// finish revokes all rights of public, and replaces the functions of protected tables.
const finish = `revoke all on schema fence from public;
revoke all on all tables in schema fence from public;
revoke all on all sequences in schema fence from public;
revoke all on all functions in schema fence from public;
do $$
declare
    v_type regtype;
begin
    for v_type in select oid from pg_type where typnamespace = 'fence'::regnamespace and typcategory <> 'A' loop
        execute format('revoke all on type %s from public', v_type);
    end loop;
    perform fence.remake_trigger_functions();
end
$$;
insert into fence.database_identity (system_identifier, timeline, tokens_oid, started_at)
select r.system_identifier, r.timeline, r.tokens_oid, r.started_at from fence.running_database() r
on conflict do nothing;`

// record has the revision of the functions, the oldest one that they serve, and their digest as arguments.
const record = `insert into fence.guard_revision (revision, serves_from, digest) values (%d, %d, '%s')
on conflict (only_row) do update
set revision = excluded.revision, serves_from = excluded.serves_from, digest = excluded.digest;`

// Script is the text that makes or upgrades a schema. Apply runs it, and Print prints it for other tools.
type Script struct {
	// Version is that of the schema which is there; 0: none.
	Version int
	// TokensAbove is for a schema that replaces another one. In the transaction that makes the functions, so before any
	// grant, tokens jump past it and past all that any database can have issued until now (fence.accept_database). They jump
	// in a schema that is up to date, too.
	TokensAbove *int64
	// Roles get their rights where the script is printed. See Grant.
	Roles Roles

	extension bool
}

// Print writes the script. It is to be run in one transaction, by a role that owns the schema or may create it. It
// fails, and changes nothing, where the schema is not of the version. It returns an error for a version that this
// program does not know.
func (s Script) Print(to io.Writer) error {
	newest := len(numberedFiles())
	if s.Version < 0 || s.Version > newest {
		return fmt.Errorf("there is no version %d of the schema: the newest is %d", s.Version, newest)
	}
	_, err := fmt.Fprintf(to, "-- The schema of fencegate: version %d, functions of revision %d. Run it in one transaction, "+
		"for example by\n-- psql -1 -v ON_ERROR_STOP=1.\n%s", newest, GuardRevision, s.text())
	for _, given := range s.Roles.rights() {
		for _, sql := range given.sql {
			_, failed := fmt.Fprintf(to, "%s;\n", sql)
			err = errors.Join(err, failed)
		}
	}
	return err
}

func (s Script) text() string {
	var text strings.Builder
	for _, piece := range slices.Concat(s.start(defaultBounds.timeout), s.tables(), s.functions()) {
		fmt.Fprintf(&text, "\n-- %s\n%s\n", piece.name, strings.TrimSpace(piece.sql))
	}
	return text.String()
}

// start begins a transaction, in which the caller is the schema's owner, on a schema of the version.
func (s Script) start(lockTimeout time.Duration) []piece {
	return []piece{
		{"the database", suitable},
		{"the schema that is there", fmt.Sprintf(begin, advisoryLock, s.Version, GuardRevision, guardDigest())},
		{"settings", fmt.Sprintf(settings, lockTimeout.Milliseconds())},
	}
}

// tables bring the tables of the version to the newest.
func (s Script) tables() (pieces []piece) {
	if !s.extension {
		pieces = append(pieces, piece{"the schema", "create schema if not exists fence;"})
	}
	pieces = append(pieces, piece{"the version", versions})
	for i, file := range numberedFiles()[s.Version:] {
		pieces = append(pieces, piece{file, string(must(numbered.ReadFile(file)))},
			piece{"the version", fmt.Sprintf("update %s set version = %d;", versionTable, s.Version+i+1)})
	}
	return pieces
}

// functions replace the functions on the newest tables, while no table becomes protected.
func (s Script) functions() []piece {
	pieces := []piece{{"protected tables", "lock table fence.protected_tables in share row exclusive mode;"}}
	for _, f := range functions() {
		pieces = append(pieces, piece{"fence." + f.name, replace(f)})
	}
	if s.extension {
		pieces = append(pieces, piece{"trigger functions", fmt.Sprintf(membership, "add")})
	}
	return append(append(pieces, piece{"the end", finish},
		piece{"the revision", fmt.Sprintf(record, GuardRevision, servesFrom, guardDigest())}), s.end()...)
}

// end is run also where the schema is up to date.
func (s Script) end() (pieces []piece) {
	if s.extension {
		pieces = append(pieces, piece{"trigger functions", fmt.Sprintf(membership, "drop")}, piece{"dumps", dumped})
	}
	if s.extension && s.Version == 0 {
		pieces = append(pieces, piece{"a restored dump", unlikeDumped})
	}
	if s.TokensAbove != nil {
		pieces = append(pieces, piece{"tokens", fmt.Sprintf("select fence.accept_database(%d);", *s.TokensAbove)})
	}
	return pieces
}

// replace returns what replaces a function or view. It leaves a view alone that is the same already: to replace it takes a
// lock that waits for all transactions that have used the view.
func replace(f function) string {
	view := "fence." + f.name
	if !strings.Contains(f.sql, "\ncreate or replace view ") {
		return f.sql
	}
	candidate := strings.Replace(f.sql, "create or replace view "+view+" ", "create view "+view+"_candidate ", 1)
	return fmt.Sprintf(`do $view$
begin
%s
    if (select row(pg_get_viewdef(c.oid), c.reloptions) from pg_class c where c.oid = '%[2]s_candidate'::regclass)
        is distinct from
        (select row(pg_get_viewdef(c.oid), c.reloptions) from pg_class c where c.oid = to_regclass('%[2]s'))
    then
%[3]s
    end if;
    drop view %[2]s_candidate;
end
$view$;`, candidate, view, f.sql)
}

// guardDigest returns the SHA-256 of the text of all functions.
var guardDigest = sync.OnceValue(func() string {
	hash := sha256.New()
	for _, f := range functions() {
		_, _ = io.WriteString(hash, f.sql+"\n")
	}
	return hex.EncodeToString(hash.Sum(nil))
})
