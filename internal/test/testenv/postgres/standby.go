package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// Standby makes a standby of the cluster, by a base backup, that streams from it: a cluster of the same system
// identifier, open to reading. Replication is asynchronous unless the options say otherwise. To lose commits on
// purpose:
//
//	standby := primary.Standby()
//	standby.CatchUp()
//	standby.Stop()
//	// commit what is to be lost on the primary
//	primary.Kill()
//	standby.Restart()
//	standby.Promote()
//
// A standby that was down for long may miss what the primary no longer keeps.
func (c *Cluster) Standby(options ...Option) *Cluster {
	c.t.Helper()
	// By default a standby that once failed to reach its primary waits for 5 s before it tries again.
	standby := Unmade(c.t, append([]Option{Setting("wal_retrieve_retry_interval", "20ms")}, options...)...)
	standby.primary = c
	c.copyTo(standby)
	c.follow(standby)
	standby.start()
	return standby
}

// Backup makes a base backup of the cluster that is not started yet: Restart starts it without archive recovery, so
// that it has the system identifier and the timeline of the original.
func (c *Cluster) Backup(options ...Option) *Cluster {
	c.t.Helper()
	backup := Unmade(c.t, options...)
	c.copyTo(backup)
	return backup
}

// Unmade returns a cluster whose files are to be put at Path. Restart then starts it.
func Unmade(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	c := prepare(t, options)
	check(t, os.Mkdir(c.dataDir, 0o711))
	return c
}

// Path is where PostgreSQL keeps the cluster: its PGDATA.
func (c *Cluster) Path() string { return filepath.Join(c.dataDir, "cluster") }

// Recover makes a backup that is not started yet go through archive recovery at its start: it then is on a timeline of
// its own. The archive is empty, so it has what the backup itself has.
func (c *Cluster) Recover() {
	c.t.Helper()
	check(c.t, os.WriteFile(filepath.Join(c.Path(), "recovery.signal"), nil, 0o600))
	c.settings["restore_command"] = "false"
}

// CatchUp returns when the standby has applied all that its primary, which must be up, had committed at the call.
func (c *Cluster) CatchUp() {
	c.t.Helper()
	if c.primary == nil {
		c.t.Fatal("CatchUp is for standbys")
	}
	target := query[string](c.primary, "select pg_current_wal_flush_lsn()::text")
	const applied = "select coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)"
	await.True(c.t, "the standby reaches "+target, func() bool { return query[bool](c, applied, target) })
}

// Promote makes the standby a primary, on a new timeline, and returns when it accepts writes. Its old primary should be
// down: nothing else keeps it from going on.
func (c *Cluster) Promote() {
	c.t.Helper()
	// A statement that waited for the promotion could itself conflict with what the standby still has to replay.
	query[bool](c, "select pg_promote(false)")
	await.True(c.t, "the standby is promoted", func() bool { return query[bool](c, "select not pg_is_in_recovery()") })
}

// FailoverURL returns one connection URL for several clusters, or networks to them, of the same database: a client
// connects to the first that accepts writes.
func FailoverURL(servers ...interface{ URL() string }) string {
	var hosts, ports []string
	var target *url.URL
	for _, server := range servers {
		target, _ = url.Parse(server.URL())
		hosts = append(hosts, target.Query().Get("host"))
		ports = append(ports, cmp.Or(target.Query().Get("port"), "5432"))
	}
	target.RawQuery = url.Values{
		"host":                 {strings.Join(hosts, ",")},
		"port":                 {strings.Join(ports, ",")},
		"target_session_attrs": {"read-write"},
		"sslmode":              {"disable"},
	}.Encode()
	return target.String()
}

// notInBackup are the files of a data directory that belong to the running server, and the directories whose files a
// copy makes anew, or gets at the end.
var notInBackup = map[string]bool{
	"postmaster.pid": true, "postmaster.opts": true, "pg_wal": true, "pg_replslot": true, "pg_stat_tmp": true,
}

// copyTo makes a base backup of the running cluster the data directory of another, which is unmade. It does
// what pg_basebackup does, which not every installation has.
func (c *Cluster) copyTo(other *Cluster) {
	c.t.Helper()
	from, to := c.Path(), other.Path()
	ctx := await.Context(c.t)
	conn, err := pgx.Connect(ctx, c.url)
	check(c.t, err)
	defer conn.Close(ctx)
	var label string
	check(c.t, conn.QueryRow(ctx, "select pg_backup_start('copy', true)::text").Scan(&label))
	check(c.t, copyTree(from, to))
	check(c.t, conn.QueryRow(ctx, "select labelfile from pg_backup_stop(false)").Scan(&label))
	check(c.t, os.WriteFile(filepath.Join(to, "backup_label"), []byte(label), 0o600))
	check(c.t, os.Remove(filepath.Join(to, "pg_wal")))
	check(c.t, copyTree(filepath.Join(from, "pg_wal"), filepath.Join(to, "pg_wal")))
}

// follow makes a copy of the cluster its standby.
func (c *Cluster) follow(standby *Cluster) {
	c.t.Helper()
	dir := standby.Path()
	check(c.t, os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o600))
	settings, err := os.OpenFile(filepath.Join(dir, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	check(c.t, err)
	_, err = fmt.Fprintf(settings, "primary_conninfo = 'host=''%s'' user=fencegate'\n", c.running.SocketDir())
	check(c.t, errors.Join(err, settings.Close()))
}

// copyTree copies files of a running server, which may change and vanish meanwhile.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, name); {
		case entry.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil || !notInBackup[name] {
				return err
			}
			return fs.SkipDir
		case notInBackup[name] || !entry.Type().IsRegular():
			return nil
		default:
			return copyFile(path, target)
		}
	})
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
