package embeddedpg

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNoBinaries says that no usable initdb and postgres were found.
	ErrNoBinaries = errors.New("no PostgreSQL binaries found")
	// ErrVersionMismatch says that the cluster in the data directory was made by a major version of PostgreSQL that
	// the binaries are not.
	ErrVersionMismatch = errors.New("the cluster is of another PostgreSQL version")
	// ErrDataDirInUse says that a living process owns the data directory.
	ErrDataDirInUse = errors.New("the data directory is in use")
	// ErrDataDirUnusable says that the data directory can't hold a cluster as it is; the text says why and what to do.
	ErrDataDirUnusable = errors.New("the data directory can't be used")
	// ErrEnded says that PostgreSQL ended without a request to end.
	ErrEnded = errors.New("PostgreSQL ended unexpectedly")
)

// noBinaries returns an ErrNoBinaries that names the ways out. skipped are the reasons why directories that hold a
// postgres were passed over.
func noBinaries(searched, skipped []string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "need initdb and postgres, version %d or newer; looked in %s",
		minMajor, strings.Join(searched, ", "))
	for _, reason := range skipped {
		fmt.Fprintf(&text, "\n  passed over %s", reason)
	}
	text.WriteString(`
Ways out, any one will do:
  - install PostgreSQL:  apt install postgresql | dnf install postgresql-server | brew install postgresql@17
  - use a database that you run:  --database-url URL, or FENCEGATE_DATABASE_URL=URL
  - run one in Docker:  docker run -d --name fencegate-db -p 127.0.0.1:5432:5432 -v fencegate-db:/var/lib/postgresql/data -e POSTGRES_PASSWORD=fencegate postgres:17
    and then:  --database-url postgres://postgres:fencegate@127.0.0.1:5432/postgres`)
	return fmt.Errorf("%w: %s", ErrNoBinaries, &text)
}

// versionMismatch returns an ErrVersionMismatch. major made the cluster in dataDir; found are the binaries that are
// there instead, possibly none.
func versionMismatch(dataDir string, major int, found ...Binaries) error {
	others := "none of another version either"
	if len(found) > 0 {
		var names []string
		for _, b := range found {
			names = append(names, fmt.Sprintf("%s in %s", b.Version, b.Dir))
		}
		others = "only " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %s was made by PostgreSQL %d, and no binaries of %d are here (%s); "+
		"install PostgreSQL %d, or move the cluster over with pg_upgrade, or choose another --data-dir",
		ErrVersionMismatch, dataDir, major, major, others, major)
}
