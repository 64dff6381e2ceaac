package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/google/uuid"
)

// scratchFlags are those of commands that need a database for a while: the one that is named, or a private one that leaves nothing behind.
type scratchFlags struct {
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
}

// scratch is that database.
type scratch struct {
	*database

	name string
	// suffix keeps the names of this run apart from those of other runs on the database.
	suffix string
	dir  string
}

func (f scratchFlags) open(ctx context.Context) (*scratch, error) {
	if f.DatabaseURL != "" {
		return &scratch{database: &database{url: f.DatabaseURL}, name: "PostgreSQL at --database-url", suffix: "-" + uuid.NewString()[:8]}, nil
	}
	dir, err := os.MkdirTemp("", "fencegate-scratch-")
	if err != nil {
		return nil, err
	}
	// As root PostgreSQL runs as another user, who must get through here to its own directory.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // nothing is in it but that directory
		return nil, err
	}
	db, err := databaseFlags{DataDir: filepath.Join(dir, "data")}.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &scratch{database: db, name: "a private PostgreSQL, durable, in a temporary directory", dir: dir}, nil
}

// use runs the work of a command with that database, which is closed after it, and with the path of this program.
func (f scratchFlags) use(ctx context.Context, work func(program string, db *scratch) error) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	db, err := f.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(work(program, db), db.close())
}

func (s *scratch) close() error {
	err := s.database.close()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
