package migrations_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

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

// TestGuardFilesAreNamedAfterTheirFunctions checks that each file under guard/ makes one function, or one view,
// with the file's name.
func TestGuardFilesAreNamedAfterTheirFunctions(t *testing.T) {
	for _, file := range migrations.GuardFiles() {
		name := strings.TrimSuffix(path.Base(file), ".sql")
		source, _ := migrations.GuardSource(name)
		head := "create or replace function fence." + name + "("
		if path.Base(path.Dir(file)) == "view" {
			head = "create or replace view fence." + name + " as"
		}
		if strings.Count(source, "\ncreate or replace ") != 1 || !strings.Contains(source, "\n"+head) {
			t.Errorf("%s does not make exactly fence.%s", file, name)
		}
	}
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
