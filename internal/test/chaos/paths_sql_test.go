//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// sqlPath performs operations by SQL alone, and writes rows of a protected table, at every isolation level.
type sqlPath struct {
	config *pgx.ConnConfig
	random *rand.Rand

	conn   *pgx.Conn // nil: not connected
	warned bool      // a warning came since it was last reset
}

// Each row of the table is a write.
const (
	createRows = `create table public.chaos_rows (
		epoch text, tree text, item text, key text, value text, token bigint, sequence bigint, at timestamptz,
		resource text generated always as ('chaos/' || epoch || '/sql/' || tree || '/' || item) stored,
		primary key (resource, key))`
	protectRows = `select fence.protect('public.chaos_rows', 'chaos/{epoch}/sql/{tree}/{item}')`
	readRows    = `select resource, key, value, token, sequence, at from public.chaos_rows
		where starts_with(resource, $1) order by resource, token, sequence`
	insertRow = `insert into public.chaos_rows values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())`
)

// The commits of its client are on disk, whatever a reload says.
func newSQLPath(w *world, random *rand.Rand) *sqlPath {
	w.t.Helper()
	config, err := pgx.ParseConfig("postgres://fencegate@" + w.hosts[0].Address() + "," + w.hosts[1].Address() +
		"/fencegate?sslmode=disable&target_session_attrs=read-write&connect_timeout=1&synchronous_commit=on")
	check(w.t, err)
	p := &sqlPath{config: config, random: random}
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { p.warned = p.warned || notice.Code == "01000" }
	return p
}

func (*sqlPath) kind() string { return "sql" }

func (*sqlPath) write() spec.Kind { return spec.Guard }

// connected returns nil without a connection to the primary.
func (p *sqlPath) connected(ctx context.Context) *pgx.Conn {
	if p.conn != nil && !p.conn.IsClosed() {
		return p.conn
	}
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil
	}
	p.conn = conn
	return conn
}

func (p *sqlPath) perform(ctx context.Context, op spec.Op) (spec.Answer, spec.Choice, error) {
	conn := p.connected(ctx)
	p.warned = false
	switch {
	case conn == nil:
		return spec.Answer{Code: spec.CodeNotApplied}, spec.Choice{}, nil
	case op.Kind == spec.Acquire:
		return p.acquire(ctx, conn, op)
	case op.Kind == spec.Release:
		answer := spec.Answer{Code: spec.CodeUnknown}
		err := conn.QueryRow(ctx, "select status from fence.release($1, $2, $3, $4)", op.Name, op.Owner, op.LeaseID, op.Token).
			Scan(&answer.Code)
		if err != nil || p.warned {
			answer.Code = spec.CodeUnknown
		}
		return answer, spec.Choice{}, surpriseOf(err)
	case op.Token == 0:
		answer, err := p.transact(ctx, conn, func(tx pgx.Tx) (bool, error) { return false, p.bare(ctx, tx, op) })
		return answer, spec.Choice{}, err
	}
	answer, err := p.transact(ctx, conn, func(tx pgx.Tx) (bool, error) { return p.guarded(ctx, tx, op) })
	return answer, spec.Choice{}, err
}

func (p *sqlPath) acquire(ctx context.Context, conn *pgx.Conn, op spec.Op) (spec.Answer, spec.Choice, error) {
	var status string
	var lease struct {
		id        *uuid.UUID
		token     *int64
		expiresAt *time.Time
	}
	err := conn.QueryRow(ctx, "select status, lease_id, fencing_token, expires_at from fence.acquire($1, $2, $3, $4, $5, $6)",
		op.Name, op.Owner, op.TTL.Milliseconds(), op.Mode, op.Scope, op.Request).
		Scan(&status, &lease.id, &lease.token, &lease.expiresAt)
	switch {
	case err != nil || p.warned:
		return spec.Answer{Code: spec.CodeUnknown}, spec.Choice{}, surpriseOf(err)
	case status != "granted":
		return spec.Answer{Code: map[string]string{"held": spec.CodeHeld, "lost": spec.CodeLost}[status]}, spec.Choice{}, nil
	}
	until := lease.expiresAt.UnixMicro()
	return spec.Answer{Code: spec.CodeGranted, Token: *lease.token, ID: *lease.id, Owner: op.Owner, ExpiresAt: until,
			Lease: string(op.Mode) + "," + string(op.Scope)},
		spec.Choice{Token: *lease.token, ID: *lease.id, GrantedAt: until - op.TTL.Microseconds(), Until: until}, nil
}

// surpriseOf returns an error of the server that no fault explains. Faults cancel statements, end sessions and exhaust
// connections; isolation levels and locks that are not granted in time have the transaction repeated.
func surpriseOf(err error) error {
	var answered *pgconn.PgError
	if !errors.As(err, &answered) {
		return nil
	}
	for _, class := range []string{"08", "25", "40", "53", "55", "57", "LF1", "LF006"} {
		if strings.HasPrefix(answered.Code, class) {
			return nil
		}
	}
	return err
}

// guarded inserts a row under a token, or returns true if that was committed before.
func (p *sqlPath) guarded(ctx context.Context, tx pgx.Tx, op spec.Op) (replayed bool, err error) {
	var leaseID *uuid.UUID
	if op.LeaseID != uuid.Nil {
		leaseID = &op.LeaseID
	}
	var digest []byte // without one, guard has another plan
	if *op.Sequence%2 == 0 {
		digest = []byte(op.Value)[:min(len(op.Value), 64)]
	}
	var admitted bool
	err = tx.QueryRow(ctx, "select fence.guard($1, $2, $3, $4, $5)", op.Name, op.Token, op.Sequence, leaseID, digest).
		Scan(&admitted)
	if err != nil || !admitted {
		return err == nil, err
	}
	return false, p.insert(ctx, tx, op, op.Token, *op.Sequence)
}

// bare inserts a row, or changes all, without a guard. Where there is no row, there is nothing to change.
func (p *sqlPath) bare(ctx context.Context, tx pgx.Tx, op spec.Op) error {
	if p.random.IntN(2) == 0 {
		return p.insert(ctx, tx, op, 0, 0)
	}
	tag, err := tx.Exec(ctx, "update public.chaos_rows set value = $1 where resource = $2", op.Value, op.Name)
	if err == nil && tag.RowsAffected() == 0 {
		return pgx.ErrNoRows
	}
	return err
}

func (p *sqlPath) insert(ctx context.Context, tx pgx.Tx, op spec.Op, token, sequence int64) error {
	parts := strings.Split(string(op.Name), "/")
	_, err := tx.Exec(ctx, insertRow, parts[1], parts[3], parts[4], op.Key, op.Value, token, sequence)
	return err
}

// refusals are the verdicts by their SQLSTATEs.
var refusals = map[string]store.Verdict{"LF101": store.VerdictTokenRequired, "LF102": store.VerdictTokenUnknown,
	"LF103": store.VerdictTokenStale, "LF104": store.VerdictLeaseMismatch}

// transact runs a transaction. Its work returns true if it was committed before.
func (p *sqlPath) transact(ctx context.Context, conn *pgx.Conn, work func(pgx.Tx) (replayed bool, err error)) (
	spec.Answer, error,
) {
	notApplied, unknown := spec.Answer{Code: spec.CodeNotApplied}, spec.Answer{Code: spec.CodeUnknown}
	level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[p.random.IntN(3)]
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		p.end()
		return notApplied, surpriseOf(err)
	}
	if p.random.IntN(2) == 0 { // its snapshot may be older than the grants that come
		_, err = tx.Exec(ctx, "select pg_sleep($1)", p.random.Float64()/3)
	}
	replayed := false
	if err == nil {
		replayed, err = work(tx)
	}
	if err != nil {
		if tx.Rollback(ctx) != nil {
			p.end()
		}
		if codeOf(err) == "LF106" { // it was committed, and nothing says that a standby has it
			return unknown, nil
		}
		if verdict := refusals[codeOf(err)]; verdict != "" {
			return spec.Answer{Code: string(verdict)}, nil
		}
		return notApplied, surpriseOf(err)
	}
	p.warned = false
	if err := tx.Commit(ctx); err != nil {
		p.end()
		if codeOf(err) != "" && !strings.HasPrefix(codeOf(err), "57") { // the server says that it was not committed
			return notApplied, surpriseOf(err)
		}
		return unknown, nil
	}
	if p.warned { // the wait for the standby was canceled
		return unknown, nil
	}
	return spec.Answer{Code: spec.CodeAdmitted, Replayed: replayed}, nil
}

func codeOf(err error) string {
	var answered *pgconn.PgError
	if errors.As(err, &answered) {
		return answered.Code
	}
	return ""
}

// end gives up the connection.
func (p *sqlPath) end() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.conn.Close(ctx)
	p.conn = nil
}
