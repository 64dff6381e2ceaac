package pgtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/await"
)

// notInBackup are the files of a data directory that belong to the running server, and the directories whose files a
// standby gets from its primary, or makes anew.
var notInBackup = map[string]bool{
	"postmaster.pid": true, "postmaster.opts": true, "pg_wal": true, "pg_replslot": true, "pg_stat_tmp": true,
}

// copyTo makes a base backup of the running cluster in a directory that does not exist, without WAL. It does what
// pg_basebackup does, which not every installation has.
func (c *Cluster) copyTo(dir string) {
	c.t.Helper()
	ctx := await.Context(c.t)
	conn, err := pgx.Connect(ctx, c.url)
	check(c.t, err)
	defer conn.Close(ctx)
	var label string
	check(c.t, conn.QueryRow(ctx, "select pg_backup_start('copy', true)::text").Scan(&label))
	check(c.t, copyTree(filepath.Join(c.dataDir, "cluster"), dir))
	check(c.t, conn.QueryRow(ctx, "select labelfile from pg_backup_stop(false)").Scan(&label))
	check(c.t, os.WriteFile(filepath.Join(dir, "backup_label"), []byte(label), 0o600))
}

// follow makes a base backup the data directory of a standby of the cluster.
func (c *Cluster) follow(dir string) {
	c.t.Helper()
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
