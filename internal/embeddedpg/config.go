package embeddedpg

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Config says where a cluster lives and how it is run. The zero value is usable.
type Config struct {
	// DataDir is the data directory; it is made if it is missing. Default: DefaultDataDir().
	DataDir string
	// BinDir is the directory of initdb and postgres. Default: the first found, see FindBinaries, or for a cluster
	// that exists the first of the version that made it.
	BinDir string
	// Settings are put over the settings of PostgreSQL that this package chooses, by name. Those that decide where the
	// cluster lives and which users can reach it can't be changed. An empty value of one that this package chooses leaves
	// it to PostgreSQL's configuration, which can be reloaded. Default: none.
	Settings map[string]string
	// Logger gets starts, recoveries and ends. Default: nothing is logged.
	Logger *slog.Logger
}

// port is part of the socket's name; no TCP port is opened.
const port = 5432

// defaults are the settings of a small durable server.
var defaults = map[string]string{
	// What was acknowledged is on disk. These are PostgreSQL's own defaults; they are stated because a setting in
	// postgresql.conf or one left behind by ALTER SYSTEM would quietly take the promise away.
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",

	// A gateway's pool, some gateways more on the same machine, psql, and the user's own programs at the SQL source. An
	// unused slot costs some kilobytes.
	"max_connections": "200",

	// The overview has guarded writes by SQL as calls of their function. To count one takes a tenth of a microsecond.
	"track_functions": "pl",

	// The server's own events and broken connections, but not each error of a client, which the client gets: rejected
	// writes are ordinary, and must not fill the disk.
	"log_min_messages": "log",
	"log_checkpoints":  "off",

	// One zone everywhere, whatever the machine's is.
	"timezone":     "UTC",
	"log_timezone": "UTC",

	// Shown by ps.
	"cluster_name": "fencegate",
}

// fixed are the settings that make the cluster private, and that this package relies on.
func fixed(socketDir string) map[string]string {
	return map[string]string{
		"listen_addresses":        "",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": quoteListItem(socketDir),
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
		"log_destination":         "stderr",
	}
}

// quoteListItem makes a path one item of a comma-separated setting, whatever characters it holds.
func quoteListItem(path string) string {
	return `"` + strings.ReplaceAll(path, `"`, `""`) + `"`
}

var settingName = regexp.MustCompile(`^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$`)

// elsewhere are settings that would take the cluster out of the data directory, beside the fixed ones.
var elsewhere = []string{"data_directory", "config_file", "hba_file", "ident_file", "external_pid_file"}

// check fills in defaults and makes the data directory's path absolute. It refuses settings that are not for the
// caller to choose.
func (c Config) check() (Config, error) {
	if c.DataDir == "" {
		dir, err := DefaultDataDir()
		if err != nil {
			return c, err
		}
		c.DataDir = dir
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("--data-dir: %w", err)
	}
	c.DataDir = dir
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	owned := fixed("")
	for name, value := range c.Settings {
		_, isFixed := owned[name]
		switch {
		case !settingName.MatchString(name):
			return c, fmt.Errorf("the PostgreSQL setting %q is not a lower-case name", name)
		case isFixed || slices.Contains(elsewhere, name):
			return c, fmt.Errorf("the PostgreSQL setting %q can't be changed: the cluster is private", name)
		case strings.ContainsRune(value, 0):
			return c, fmt.Errorf("the PostgreSQL setting %q has a NUL byte in its value", name)
		}
	}
	return c, nil
}

// postgresArgs are the arguments of postgres, in an order that does not change from start to start. On the command
// line they win over every configuration file.
func (c Config) postgresArgs(cluster, socketDir string) []string {
	settings := maps.Clone(defaults)
	maps.Copy(settings, c.Settings)
	maps.Copy(settings, fixed(socketDir))
	args := []string{"-D", cluster}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] == "" && defaults[name] != "" {
			continue
		}
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
