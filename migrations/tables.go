package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNoTable means that a table does not exist.
	ErrNoTable = errors.New("there is no such table")
	// ErrNotProtected means that a table has no fence.
	ErrNotProtected = errors.New("the table is not protected")
)

// Table is a table of the view fence.protected.
type Table struct {
	Table       string     `json:"table"` // with its schema; the number of one that was dropped
	Template    string     `json:"template"`
	Mode        string     `json:"mode"` // enforce or observe; "": the table is not protected
	ProtectedAt *time.Time `json:"protected_at,omitempty"`
	Problem     string     `json:"problem,omitempty"` // what keeps rows from being checked
}

// Tables returns the tables of the view fence.protected, by name. It returns ErrNotMigrated, or the database's error.
func Tables(ctx context.Context, conn *pgx.Conn) ([]Table, error) { return tables(ctx, conn, nil) }

func tables(ctx context.Context, conn *pgx.Conn, id *uint32) ([]Table, error) {
	rows, _ := conn.Query(ctx, `
		select coalesce(n.nspname || '.' || c.relname, p.table_name), coalesce(p.template, ''),
			coalesce(p.mode, ''), p.protected_at, coalesce(p.problem, '')
		from fence.protected p
		left join pg_class c on c.oid = to_regclass(p.table_name)
		left join pg_namespace n on n.oid = c.relnamespace
		where $1::oid is null or p.table_name = $1::oid::regclass::text
		order by 1`, id)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Table])
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == undefinedTable {
		return nil, fmt.Errorf("%w; run `fencegate migrate`", ErrNotMigrated)
	}
	return found, err
}

// tableStep and tablePause bound how long writers wait behind a change of their table that waits for an open transaction,
// and how long they continue before the next try.
const tableStep, tablePause = 200 * time.Millisecond, 300 * time.Millisecond

// ChangeTable sets the mode of a protected table and keeps its template, if the change is "enforce" or "observe"; or it
// ends the protection: "unprotect". name is as SQL has it, or the number of a table that was dropped. conn is of the
// table's owner. It returns the table as it is then.
//
// It waits for other transactions at most for the time, in steps between which writers continue, and then returns a
// BlockedError. It returns ErrNoTable, ErrNotProtected, ErrNotMigrated, or the database's error.
func ChangeTable(ctx context.Context, conn *pgx.Conn, name, change string, wait time.Duration) (Table, error) {
	var id *uint32
	err := conn.QueryRow(ctx, "select case when $1 ~ '^[0-9]+$' then $1 else to_regclass($1)::oid::text end::oid", name).
		Scan(&id)
	if err != nil {
		return Table{}, err
	}
	before, err := tables(ctx, conn, id)
	switch {
	case err != nil:
		return Table{}, err
	case id == nil:
		return Table{}, fmt.Errorf("%w: %s", ErrNoTable, name)
	case len(before) == 0, before[0].Mode == "" && change != "unprotect":
		return Table{}, fmt.Errorf("%w: %s", ErrNotProtected, name)
	}
	sql, args := "select fence.protect($1::oid, $2, $3)", []any{*id, before[0].Template, change}
	if change == "unprotect" {
		sql, args = "select fence.unprotect($1::oid)", []any{*id}
	}
	watch, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return Table{}, err
	}
	defer func() { _ = watch.Close(context.WithoutCancel(ctx)) }()
	var blockers []Blocker
	bounds := lockBounds{tableStep, tablePause, max(1, int(wait/(tableStep+tablePause)))}
	err = bounds.retry(ctx, func() error {
		watched := watchBlockers(ctx, watch, conn.PgConn().PID())
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := setLockTimeout(ctx, tx, bounds.timeout); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql, args...)
			return err
		})
		blockers = watched()
		return err
	})
	if errors.Is(err, ErrLocked) {
		return Table{}, &BlockedError{Table: before[0].Table, Blockers: blockers, err: err}
	}
	if err != nil {
		return Table{}, err
	}
	after, err := tables(ctx, conn, id)
	return append(after, Table{Table: before[0].Table})[0], err
}

// Blocker is a session for which a change has waited, or a prepared transaction, whose PID is 0.
type Blocker struct {
	PID               int32
	User, Application string
	State             string        // as of pg_stat_activity; "" without the right to see it and what follows
	Open              time.Duration // since when its transaction is
	Query             string        // the begin of its latest statement
}

// BlockedError means that other transactions kept what a change of a table needs locked. It is an ErrLocked.
type BlockedError struct {
	Table    string
	Blockers []Blocker
	err      error
}

func (e *BlockedError) Unwrap() error { return e.err }

func (e *BlockedError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s is unchanged: other transactions have locked what the change needs", e.Table)
	for _, b := range e.Blockers {
		if b.PID == 0 {
			text.WriteString("\n  a prepared transaction: end one of those in pg_prepared_xacts")
			continue
		}
		fmt.Fprintf(&text, "\n  pid %d, user %s, application %q", b.PID, b.User, b.Application)
		if b.State != "" {
			fmt.Fprintf(&text, ", %s, transaction open for %s: %s", b.State, b.Open, b.Query)
		}
		fmt.Fprintf(&text, "\n    to end it: select pg_terminate_backend(%d)", b.PID)
	}
	return text.String()
}

// watchBlockers looks for which sessions a backend waits, until the result is called. That returns those it saw last.
func watchBlockers(ctx context.Context, watch *pgx.Conn, pid uint32) (stop func() []Blocker) {
	done, last := make(chan struct{}), make(chan []Blocker)
	go func() {
		var seen []Blocker
		for {
			rows, _ := watch.Query(ctx, `
				select b.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
					date_trunc('second', coalesce(clock_timestamp() - a.xact_start, '0')),
					coalesce(regexp_replace(left(a.query, 100), '\s+', ' ', 'g'), '')
				from unnest(pg_blocking_pids($1)) as b (pid) left join pg_stat_activity a on a.pid = b.pid`, int32(pid))
			if now, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Blocker]); err == nil && len(now) > 0 {
				seen = now
			}
			select {
			case <-done:
				last <- seen
				return
			case <-time.After(tableStep / 10):
			}
		}
	}()
	return func() []Blocker {
		close(done)
		return <-last
	}
}
