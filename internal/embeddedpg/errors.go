package embeddedpg

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNoBinaries says that no usable initdb and postgres were found. The error is a *NoBinariesError.
	ErrNoBinaries = errors.New("no PostgreSQL binaries found")
	// ErrVersionMismatch says that the cluster in the data directory was made by a major version of PostgreSQL that
	// the binaries are not. The error is a *VersionMismatchError.
	ErrVersionMismatch = errors.New("the cluster is of another PostgreSQL version")
	// ErrDataDirInUse says that a living process owns the data directory.
	ErrDataDirInUse = errors.New("the data directory is in use")
	// ErrDataDirUnusable says that the data directory can't hold a cluster as it is; the text says why and what to do.
	ErrDataDirUnusable = errors.New("the data directory can't be used")
	// ErrEnded says that PostgreSQL ended without a request to end.
	ErrEnded = errors.New("PostgreSQL ended unexpectedly")
)

// NoBinariesError is the typed form of ErrNoBinaries. Its text names the ways out.
type NoBinariesError struct {
	// Searched are the directories that were searched, as patterns.
	Searched []string
	// Skipped are the reasons why directories that do hold a postgres were passed over.
	Skipped []string
}

func (e *NoBinariesError) Is(target error) bool { return target == ErrNoBinaries }

func (e *NoBinariesError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%v: need initdb and postgres, version %d or newer; looked in %s",
		ErrNoBinaries, MinMajor, strings.Join(e.Searched, ", "))
	for _, reason := range e.Skipped {
		fmt.Fprintf(&text, "\n  passed over %s", reason)
	}
	text.WriteString(`
Ways out, any one will do:
  - install PostgreSQL:  apt install postgresql | dnf install postgresql-server | brew install postgresql@17
  - use a database that you run:  --database-url URL, or FENCEGATE_DATABASE_URL=URL
  - run one in Docker:  docker run -d --name fencegate-db -p 127.0.0.1:5432:5432 -v fencegate-db:/var/lib/postgresql/data -e POSTGRES_PASSWORD=fencegate postgres:17
    and then:  --database-url postgres://postgres:fencegate@127.0.0.1:5432/postgres`)
	return text.String()
}

// VersionMismatchError is the typed form of ErrVersionMismatch.
type VersionMismatchError struct {
	// DataDir is the data directory whose cluster can't be started.
	DataDir string
	// Major is the version that made the cluster.
	Major int
	// Found are the binaries that are there instead, possibly none.
	Found []Binaries
}

func (e *VersionMismatchError) Is(target error) bool { return target == ErrVersionMismatch }

func (e *VersionMismatchError) Error() string {
	found := "none of another version either"
	if len(e.Found) > 0 {
		var names []string
		for _, b := range e.Found {
			names = append(names, fmt.Sprintf("%s in %s", b.Version, b.Dir))
		}
		found = "only " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%v: %s was made by PostgreSQL %d, and no binaries of %d are here (%s); "+
		"install PostgreSQL %d, or move the cluster over with pg_upgrade, or choose another --data-dir",
		ErrVersionMismatch, e.DataDir, e.Major, e.Major, found, e.Major)
}
