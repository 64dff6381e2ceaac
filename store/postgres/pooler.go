package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// settingsTimeout is how long the sessions of a pooler may take to get new settings of the role.
const settingsTimeout = 5 * time.Second

// settingsLock is the advisory lock of configureRole. The number is "fencerol" in ASCII.
const settingsLock int64 = 0x66656e6365726f6c

// throughPooler prepares a pool for a pooler in transaction mode. The pooler may run each statement in another session.
// So no session has settings of its own, and statements have no names: pgx remembers their descriptions alone.
func throughPooler(config *pgxpool.Config) {
	config.ConnConfig.RuntimeParams = map[string]string{"application_name": "fencegate"}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
}

// CheckSessions makes sure that statements run with the Store's settings. Where DatabaseURL leads through a pooler in
// transaction mode, Await has made them settings of the role in this database. It returns ErrInvalid if that is such a
// pooler and ListenURL is not set, or if the pooler's sessions keep other settings, and ErrUnavailable.
func (s *Store) CheckSessions(ctx context.Context) error {
	if s.config.ListenURL == "" {
		return s.requireSessions(ctx)
	}
	return s.awaitSettings(ctx)
}

// requireSessions returns ErrInvalid if two connections of the pool share a session.
func (s *Store) requireSessions(ctx context.Context) error {
	mark := rand.Text()
	var shared bool
	err := s.pool.AcquireFunc(ctx, func(first *pgxpool.Conn) error {
		const set, get = "select set_config('fencegate.session', $1, false)", "select current_setting('fencegate.session', true) = $1"
		if _, err := first.Exec(ctx, set, pgx.QueryExecModeExec, mark); err != nil {
			return err
		}
		err := s.pool.AcquireFunc(ctx, func(second *pgxpool.Conn) error {
			var same *bool
			err := second.QueryRow(ctx, get, pgx.QueryExecModeExec, mark).Scan(&same)
			shared = same != nil && *same
			return err
		})
		if err == nil {
			_, err = first.Exec(ctx, set, pgx.QueryExecModeExec, "")
		}
		return err
	})
	switch {
	case isState(err, "53300"): // the server has no second connection, which a pooler would wait for
		return nil
	case err != nil:
		return store.NotApplied(err)
	case shared:
		return fmt.Errorf("%w: --database-url leads through a pooler in transaction mode: "+
			"set --listen-url to a URL that leads to the database directly", store.ErrInvalid)
	}
	return nil
}

// configureRole makes the Store's settings those of the role, for sessions in this database that begin from now on.
func (s *Store) configureRole(ctx context.Context) error {
	return s.onConnection(ctx, func(conn *pgx.Conn) error {
		return classify(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return s.alterSettings(ctx, tx) }))
	})
}

// alterSettings changes the settings that the role does not have.
func (s *Store) alterSettings(ctx context.Context, tx pgx.Tx) error {
	const alone = "select pg_advisory_xact_lock($1)" // gateways that start together change the same row
	if _, err := tx.Exec(ctx, alone, settingsLock); err != nil {
		return err
	}
	settings := s.config.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := alterRole(ctx, tx, name, settings[name]); err != nil {
			return err
		}
	}
	return nil
}

// alterRole changes a setting of the role, unless it has this value.
func alterRole(ctx context.Context, tx pgx.Tx, name, value string) error {
	const statement = `
		select format('alter role %I in database %I set %I = %L', current_user, current_database(), $1::text, $2::text)
		where not exists (
			select from pg_db_role_setting s
			where s.setrole = (select r.oid from pg_roles r where r.rolname = current_user)
				and $1::text || '=' || $2::text = any (s.setconfig)
				and s.setdatabase = (select d.oid from pg_database d where d.datname = current_database()))`
	var alter string
	err := tx.QueryRow(ctx, statement, name, value).Scan(&alter)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = tx.Exec(ctx, alter)
	}
	return err
}

// awaitSettings waits until the pooler's sessions have the settings of the role.
func (s *Store) awaitSettings(ctx context.Context) error {
	settings := s.config.settings()
	for deadline := time.Now().Add(settingsTimeout); ; timing.Sleep(ctx, 200*time.Millisecond) {
		differs := ""
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			var value string
			const sql = "select setting from pg_settings where name = $1"
			if err := s.pool.QueryRow(ctx, sql, pgx.QueryExecModeExec, name).Scan(&value); err != nil {
				return store.NotApplied(err)
			}
			if value != settings[name] {
				differs = fmt.Sprintf("%s is %s, not %s", name, value, settings[name])
			}
		}
		switch {
		case differs == "":
			return nil
		case ctx.Err() != nil || time.Now().After(deadline):
			return fmt.Errorf("%w: the sessions behind --database-url are older than the settings of their role (%s): "+
				"have the pooler connect anew (PgBouncer: RECONNECT)", store.ErrInvalid, differs)
		}
	}
}
