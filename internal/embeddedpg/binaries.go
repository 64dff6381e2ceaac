package embeddedpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// minMajor is the oldest major version of PostgreSQL that is used.
const minMajor = 14

// versionTimeout bounds one `postgres --version`, which needs milliseconds.
const versionTimeout = 10 * time.Second

// Binaries is an installation of PostgreSQL's programs.
type Binaries struct {
	// Dir holds initdb and postgres, and usually their companions. Absolute, without symbolic links: the programs
	// find each other, and their libraries, from their real location.
	Dir string
	// Major is the major version.
	Major int
	// Version is the whole version, such as "15.4" or "15.4 (Debian 15.4-1)".
	Version string
}

// Path returns the path of the program called name. It need not exist: installations differ in the companions
// (pg_basebackup, psql) that they hold.
func (b Binaries) Path(name string) string { return filepath.Join(b.Dir, name) }

// FindBinaries returns the binaries that a new cluster is made with: the first on the PATH, else the newest in
// /usr/lib/postgresql, /usr/pgsql-*, Homebrew, Postgres.app or fencegate's caches, in this order. It returns ErrNoBinaries if none are of
// version 14 or newer.
func FindBinaries() (Binaries, error) { return machine().find() }

// search is where binaries are looked for, in this order.
type search struct {
	pathList string   // directories, as in $PATH
	patterns []string // for filepath.Glob
}

func machine() search {
	patterns := []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/var/cache/fencegate/postgres/*/bin",
	}
	if cache, err := os.UserCacheDir(); err == nil {
		patterns = append(patterns, filepath.Join(cache, "fencegate", "postgres", "*", "bin"))
	}
	return search{pathList: os.Getenv("PATH"), patterns: patterns}
}

// find returns the first binaries that a new cluster may be made with.
func (s search) find() (Binaries, error) {
	var skipped []string
	for _, dir := range s.dirs() {
		binaries, err := inspect(dir)
		if err == nil && binaries.Major >= minMajor {
			return binaries, nil
		}
		if err == nil {
			err = fmt.Errorf("%s: version %s is older than %d", dir, binaries.Version, minMajor)
		}
		skipped = append(skipped, err.Error())
	}
	return Binaries{}, noBinaries(append([]string{"PATH"}, s.patterns...), skipped)
}

// findMajor returns the first binaries of the version that made the cluster in dataDir.
func (s search) findMajor(major int, dataDir string) (Binaries, error) {
	var others []Binaries
	for _, dir := range s.dirs() {
		binaries, err := inspect(dir)
		if err == nil && binaries.Major == major {
			return binaries, nil
		}
		if err == nil {
			others = append(others, binaries)
		}
	}
	return Binaries{}, versionMismatch(dataDir, major, others...)
}

// dirs returns the directories that hold a postgres, without symbolic links, each once, in the order of preference.
func (s search) dirs() []string {
	var candidates []string
	for _, dir := range filepath.SplitList(s.pathList) {
		// A relative entry would make the choice depend on where the gateway was started.
		if filepath.IsAbs(dir) {
			candidates = append(candidates, dir)
		}
	}
	for _, pattern := range s.patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		slices.SortFunc(matches, newestFirst)
		candidates = append(candidates, matches...)
	}
	var found []string
	for _, dir := range candidates {
		postgres, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil {
			continue
		}
		if real := filepath.Dir(postgres); !slices.Contains(found, real) {
			found = append(found, real)
		}
	}
	return found
}

var pathNumber = regexp.MustCompile(`(\d+)(?:\.\d+)?/bin$`)

// newestFirst orders directories such as /usr/lib/postgresql/9.6/bin by the major version in their names, descending.
func newestFirst(a, b string) int { return majorInPath(b) - majorInPath(a) }

func majorInPath(dir string) int {
	match := pathNumber.FindStringSubmatch(dir)
	if match == nil {
		return 0
	}
	major, _ := strconv.Atoi(match[1]) // of digits
	return major
}

var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) ((\d+)\S*(?: .*)?)\s*$`)

// inspect reads the version of the binaries in dir. It fails if initdb or postgres is missing or does not run.
func inspect(dir string) (Binaries, error) {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return Binaries{}, fmt.Errorf("%s: no %s that can be run", dir, name)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	var self *account
	line, err := self.command(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("%s: postgres --version: %w", dir, err)
	}
	match := versionLine.FindStringSubmatch(string(line))
	if match == nil {
		return Binaries{}, fmt.Errorf("%s: postgres --version says %q", dir, line)
	}
	major, _ := strconv.Atoi(match[2]) // of digits
	return Binaries{Dir: dir, Major: major, Version: match[1]}, nil
}

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
