package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

const guardGolden = "testdata/guard.golden"

// guardHeader begins the golden file.
const guardHeader = `# Revisions of the functions: the SHA-256 of the files under guard/, and "released" after a release.
# The digest of a released revision never changes: changed functions are a new revision.
`

// guardEntry is a line of the golden file.
type guardEntry struct {
	revision int
	digest   string
	released bool
}

func (e guardEntry) String() string {
	line := fmt.Sprintf("%d %s", e.revision, e.digest)
	if e.released {
		line += " released"
	}
	return line
}

// TestGuardRevision checks that two versions of the functions never have one number: a gateway replaces functions with
// a lower number, and leaves those with its own number alone.
func TestGuardRevision(t *testing.T) {
	entries := readGuardGolden(t)
	at := slices.IndexFunc(entries, func(e guardEntry) bool { return e.revision == migrations.GuardRevision })
	digest := migrations.GuardDigest()
	switch {
	case at >= 0 && entries[at].digest == digest:
		return
	case at >= 0 && entries[at].released:
		t.Fatalf("the functions under guard/ have changed since revision %d was released: "+
			"raise GuardRevision in embed.go to %d, then run `go test ./migrations -run TestGuardRevision -update`",
			migrations.GuardRevision, migrations.GuardRevision+1)
	case !*update:
		t.Fatalf("the functions under guard/ are not revision %[2]d of %[1]s: "+
			"run `go test ./migrations -run TestGuardRevision -update`", guardGolden, migrations.GuardRevision)
	case at >= 0:
		entries[at].digest = digest
	default:
		entries = append(entries, guardEntry{revision: migrations.GuardRevision, digest: digest})
	}
	writeGuardGolden(t, entries)
}

// TestGuardRevisionsRise checks that GuardRevision is the last of the recorded revisions.
func TestGuardRevisionsRise(t *testing.T) {
	entries := readGuardGolden(t)
	for i, entry := range entries {
		if entry.revision != i+1 {
			t.Errorf("entry %d of %s is revision %d", i+1, guardGolden, entry.revision)
		}
		if !entry.released && i < len(entries)-1 {
			t.Errorf("revision %d is older than the newest, and not marked as released", entry.revision)
		}
	}
	if len(entries) != migrations.GuardRevision {
		t.Errorf("GuardRevision is %d, and %s ends with %d", migrations.GuardRevision, guardGolden, len(entries))
	}
}

func readGuardGolden(t *testing.T) []guardEntry {
	t.Helper()
	text, err := os.ReadFile(guardGolden)
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	var entries []guardEntry
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var entry guardEntry
		var mark string
		_, err := fmt.Sscanf(line, "%d %s %s", &entry.revision, &entry.digest, &mark)
		if entry.digest == "" || mark != "" && mark != "released" {
			t.Fatalf("%s: %q: %v", guardGolden, line, err)
		}
		entry.released = mark == "released"
		entries = append(entries, entry)
	}
	return entries
}

func writeGuardGolden(t *testing.T, entries []guardEntry) {
	t.Helper()
	var text strings.Builder
	text.WriteString(guardHeader)
	for _, entry := range entries {
		fmt.Fprintln(&text, entry)
	}
	writeGolden(t, guardGolden, text.String())
}

// TestFunctionsHaveHeaders checks that each function and view under guard/ has a comment that begins with its name.
func TestFunctionsHaveHeaders(t *testing.T) {
	for _, name := range migrations.Functions() {
		source, _ := migrations.GuardSource(name)
		if strings.Count(source, "\ncreate or replace ") != 1 || !regexp.MustCompile(`^-- fence\.`+name+`\b`).MatchString(source) {
			t.Errorf("fence.%s does not stand alone, behind a comment that begins with its name", name)
		}
	}
}

// TestFunctionsHaveNoBackslashes checks that the functions mean the same in every session: a session parses their
// bodies by its own standard_conforming_strings.
func TestFunctionsHaveNoBackslashes(t *testing.T) {
	t.Parallel()
	var names []string
	err := connect(t, postgres.Migrated(t)).QueryRow(context.Background(), `
		select coalesce(array_agg(proname::text), '{}') from pg_proc
		where pronamespace = to_regnamespace('fence') and position(chr(92) in prosrc) > 0`).Scan(&names)
	if err != nil || len(names) > 0 {
		t.Errorf("these functions have a backslash: %v (%v)", names, err)
	}
}

// TestSettingsOfTheDatabase checks that settings of the database that change how SQL is parsed do not change the
// schema.
func TestSettingsOfTheDatabase(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	for _, setting := range []string{
		"standard_conforming_strings = off", "transform_null_equals = on",
		"default_transaction_isolation = ''serializable''",
	} {
		exec(t, connect(t, url),
			"do $$ begin execute format('alter database %I set "+setting+"', current_database()); "+
				"exception when feature_not_supported then null; end $$") // standard_conforming_strings, since PostgreSQL 19
	}
	conn := connect(t, url)
	if err := migrations.Apply(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "set standard_conforming_strings = on") // it also changes how the catalogs show the schema
	expectMigrated(t, conn)
	for name, valid := range map[string]bool{
		"ab": true, "a/bc": true, "a//b": false, "a/../b": false, ".": false, "a\u0001b": false, `a\b`: true, "u001f": true,
	} {
		err := conn.QueryRow(t.Context(), "select $1::fence.name::text", name).Scan(new(string))
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr); (err == nil) != valid || err != nil && pgErr.Code != "23514" {
			t.Errorf("the name %q: %v, want that it is valid: %v", name, err, valid)
		}
	}
}

// TestContextIsShort checks that a rejection comes with few lines of CONTEXT, which psql and logs show.
func TestContextIsShort(t *testing.T) {
	t.Parallel()
	conn := connect(t, scripted(t, `
		create table plain (id integer); select fence.protect('plain', 'plain/{id}');
		create table whole (id integer); select fence.protect('whole', 'whole');
		create table parts (id integer) partition by list (id); create table part partition of parts default;
		select fence.protect('parts', 'parts/{id}')`))
	for _, c := range []struct {
		sql      string
		linesMax int
	}{
		{"select fence.guard('a', 1)", 2},
		{"select fence.guard('a', 1, 1, gen_random_uuid(), '\\x01')", 2},
		{"insert into plain values (1)", 3},
		{"insert into parts values (1)", 3},
		{"truncate plain", 1},
		{"truncate whole", 3},
		{"begin; select fence.set_token(1); insert into plain values (1)", 3},
	} {
		_, err := conn.Exec(t.Context(), c.sql)
		rejected, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || !strings.HasPrefix(rejected.Code, "LF10") || strings.Count(rejected.Where, "\n")+1 > c.linesMax {
			t.Errorf("%s: %v, want a rejection with at most %d lines of context:\n%s", c.sql, err, c.linesMax, rejected.Where)
		}
	}
}
