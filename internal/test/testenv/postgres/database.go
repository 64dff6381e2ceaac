// Package postgres gives tests a real PostgreSQL.
//
// Most tests want a database of their own on a server that the whole test process shares:
//
//	func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
//
//	func TestX(t *testing.T) {
//		url := postgres.Migrated(t) // or postgres.Empty(t)
//
// The shared server is the one that FENCEGATE_DATABASE_URL names, where databases are made and dropped, and nothing else
// is touched. If that is not set, it runs from PostgreSQL binaries on this machine, on a copy of a cluster that is kept
// in the user's cache. Without either the test is skipped, or fails where CI=true: a check that never ran must not look
// green. (`make test` sets the variable if there are no binaries, but there is Docker.)
//
// Tests that break PostgreSQL want a cluster of their own, see [NewCluster]: kill it, start it again, make a standby,
// promote that, lose commits on the way. Clusters are durable; the shared server is not (fsync is off), which no client
// can tell unless it crashes.
//
// Nothing is left behind: what a killed test process leaves is removed by the next one.
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/migrations"
)

// Empty returns the URL of a new, empty database, encoded in UTF8 and sorted by bytes. It is dropped when the test
// ends, even if clients are still connected.
func Empty(t testing.TB) string {
	t.Helper()
	return sharedServer(t).fresh(t, "")
}

// Migrated returns the URL of a new database in which the migrations have been applied. It is a copy of one that they
// were applied in once. It is dropped when the test ends, even if clients are still connected.
func Migrated(t testing.TB) string {
	t.Helper()
	server := sharedServer(t)
	return server.fresh(t, server.migrated(t))
}

// Copied returns the URL of a copy of another database of a test, to which nobody may be connected. It is dropped when
// the test ends, even if clients are still connected.
func Copied(t testing.TB, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	check(t, err)
	return sharedServer(t).fresh(t, config.Database)
}

// migrated returns the database that Migrated copies.
func (s *server) migrated(t testing.TB) (name string) {
	t.Helper()
	s.template.once.Do(func() { s.template.err = s.template.make(s, os.Getenv(templateEnv), s.migrate) })
	check(t, s.template.err)
	return s.template.name
}

// owners has the URL for the owner of each database of ForGateway.
var owners sync.Map

// ForGateway is Migrated, for a role that has the rights of gateways and does not own the schema.
func ForGateway(t testing.TB) string {
	t.Helper()
	server := sharedServer(t)
	template := server.migrated(t)
	made := &server.gatewayTemplate
	made.once.Do(func() { made.err = made.make(server, template, server.makeGatewayRole) })
	check(t, made.err)
	role := made.name
	owner := server.fresh(t, role)
	gateway := owner + " user=" + role // the last one counts
	if target, err := url.Parse(owner); err == nil && target.Scheme != "" {
		if password, has := target.User.Password(); has {
			target.User = url.UserPassword(role, password)
		} else {
			target.User = url.User(role)
		}
		gateway = target.String()
	}
	owners.Store(gateway, owner)
	return gateway
}

// AsOwner returns the URL of a database of ForGateway for the owner of the schema. Any other URL stays as it is.
func AsOwner(database string) string {
	if owner, is := owners.Load(database); is {
		return owner.(string)
	}
	return database
}

// newName returns a name for a database that no other process has.
func newName() string { return "fencegate_test_" + strings.ToLower(rand.Text()) }

// fresh makes a database for one test, empty if template is "".
func (s *server) fresh(t testing.TB, template string) string {
	t.Helper()
	name := newName()
	check(t, s.create(await.Context(t), name, template))
	check(t, s.trackCalls(await.Context(t), name))
	url, err := s.databaseURL(name)
	check(t, err)
	t.Cleanup(func() {
		s.writeCalls(t, name, url)
		if err := s.drop(await.Context(t), name); err != nil {
			t.Error(err)
		}
	})
	return url
}

func (s *server) create(ctx context.Context, name, template string) error {
	quoted := pgx.Identifier{name}.Sanitize()
	if template == "" {
		// template0 alone may be copied under another encoding than its own.
		return s.exec(ctx, "create database "+quoted+" template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'")
	}
	return s.exec(ctx, "create database "+quoted+" template "+pgx.Identifier{template}.Sanitize()+s.copying)
}

func (s *server) drop(ctx context.Context, name string) error {
	return s.exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
}

func (s *server) exec(ctx context.Context, sql string) (err error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// BreakRule makes fence.rule in a migrated database find no token stale.
func BreakRule(t testing.TB, url string) {
	t.Helper()
	source, _ := migrations.GuardSource("rule")
	broken := regexp.MustCompile(`'token_stale \w+'`).ReplaceAllString(source, "'admitted'")
	if broken == source {
		t.Fatal("fence.rule has no token_stale to break")
	}
	check(t, (&server{url: url}).exec(await.Context(t), broken))
}

// make makes the database of a template, a copy of another one or empty, and prepares it.
func (t *template) make(s *server, from string, prepare func(context.Context, *pgx.Conn) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := newName()
	if err := s.create(ctx, name, from); err != nil {
		return err
	}
	t.name = name
	url, err := s.databaseURL(name)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	// A database that somebody is connected to can't be copied.
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return prepare(ctx, conn)
}

// migrate prepares the database that Migrated copies.
func (s *server) migrate(ctx context.Context, conn *pgx.Conn) error {
	// PostgreSQL 15 writes the copy to its log, unless it is told otherwise. That takes twice the time of copying files.
	if err := conn.QueryRow(ctx, "select case when current_setting('server_version_num')::integer >= 150000 "+
		"then ' strategy file_copy' else '' end").Scan(&s.copying); err != nil {
		return err
	}
	if os.Getenv(templateEnv) == "" {
		if err := migrations.Apply(ctx, conn); err != nil {
			return fmt.Errorf("apply the migrations: %w", err)
		}
	}
	return breakSchema(ctx, conn)
}

// makeGatewayRole makes a role of gateways in the database that ForGateway copies. It has the name of the database, and
// the password of the owner.
func (s *server) makeGatewayRole(ctx context.Context, conn *pgx.Conn) error {
	name := s.gatewayTemplate.name
	const sql = "select format('create role %I login password %L', $1::text, nullif($2::text, ''))"
	var create string
	if err := conn.QueryRow(ctx, sql, name, conn.Config().Password).Scan(&create); err != nil {
		return err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if _, err := conn.Exec(ctx, create+"; grant pg_read_all_stats to "+quoted); err != nil {
		return fmt.Errorf("make the role of gateways: %w", err)
	}
	return migrations.Grant(ctx, conn, migrations.Roles{Gateway: []string{name}})
}

func (s *server) dropTemplates() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failures []error
	if s.template.name != "" {
		failures = append(failures, s.drop(ctx, s.template.name))
	}
	if s.gatewayTemplate.name != "" {
		failures = append(failures, s.drop(ctx, s.gatewayTemplate.name),
			s.exec(ctx, "drop role if exists "+pgx.Identifier{s.gatewayTemplate.name}.Sanitize()))
	}
	return errors.Join(failures...)
}

// InstallExtension restarts the cluster with programs of its own, which find the files of an extension. Those of the
// machine may belong to root, and to all tests. It copies the programs that PostgreSQL runs, since they find their files
// by where they are, and links all else.
func (c *Cluster) InstallExtension(files map[string]string) {
	c.t.Helper()
	place := func(name string) string {
		return query[string](c, "select setting from pg_config() where name = $1", name)
	}
	programs, share := place("BINDIR"), place("SHAREDIR")
	libraries := []string{place("LIBDIR"), place("PKGLIBDIR")} // the first may have the second in it
	root := programs
	for !strings.HasPrefix(share, root+"/") {
		root = filepath.Dir(root)
	}
	prefix, err := scratch.next()
	check(c.t, err)
	c.t.Cleanup(func() { check(c.t, os.RemoveAll(prefix)) })
	copied := func(dir string) string { return prefix + strings.TrimPrefix(dir, root) }
	mkdir := func(dir string) { check(c.t, os.MkdirAll(dir, 0o755)) }

	mkdir(copied(programs))
	for _, name := range []string{"postgres", "initdb"} {
		text, err := os.ReadFile(filepath.Join(programs, name))
		check(c.t, err)
		check(c.t, os.WriteFile(filepath.Join(copied(programs), name), text, 0o755)) //nolint:gosec // it is a program
	}
	for _, dir := range libraries {
		if _, err := os.Stat(copied(dir)); err != nil && strings.HasPrefix(dir, root+"/") {
			mkdir(filepath.Dir(copied(dir)))
			check(c.t, os.Symlink(dir, copied(dir)))
		}
	}
	link := func(from, to string) {
		mkdir(to)
		entries, err := os.ReadDir(from)
		check(c.t, err)
		for _, entry := range entries {
			if entry.Name() != "extension" {
				check(c.t, os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
			}
		}
	}
	link(share, copied(share))
	extensions := filepath.Join(copied(share), "extension")
	link(filepath.Join(share, "extension"), extensions)
	for name, text := range files {
		check(c.t, os.WriteFile(filepath.Join(extensions, name), []byte(text), 0o644)) //nolint:gosec // for PostgreSQL's user
	}
	check(c.t, c.running.Stop(await.Context(c.t)))
	c.binDir = copied(programs)
	c.start()
}
