//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/lockclient/api"
)

// sqlPath leases names and nested subtrees, and writes rows of a protected table, by SQL alone, at every isolation level.
type sqlPath struct {
	w      *world
	root   string
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
func newSQLPath(w *world, root string) *sqlPath {
	w.t.Helper()
	config, err := pgx.ParseConfig("postgres://fencegate@" + w.hosts[0].Address() + "," + w.hosts[1].Address() +
		"/fencegate?sslmode=disable&target_session_attrs=read-write&connect_timeout=1&synchronous_commit=on")
	check(w.t, err)
	p := &sqlPath{w: w, root: root, config: config}
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { p.warned = p.warned || notice.Code == "01000" }
	return p
}

func (*sqlPath) kind() string { return "sql" }

func (p *sqlPath) draw(random *rand.Rand) (lock string, request api.AcquireRequest, resources []string) {
	p.random = random
	lock, request, resources = drawInTree(random, p.root+"/a/1", p.root+"/b/1")
	return lock, request, resources
}

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

func (p *sqlPath) acquire(ctx context.Context, lock string, request api.AcquireRequest) (lease api.Lease, granted bool) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn := p.connected(ctx)
	if conn == nil {
		return lease, false
	}
	lease = api.Lease{Lock: lock, OwnerID: request.OwnerID, Mode: request.Mode, Scope: request.Scope}
	var status string
	var id *string
	var token *int64
	p.warned = false
	err := conn.QueryRow(ctx, `select status, lease_id::text, fencing_token
		from fence.acquire($1, $2, $3, $4, $5, $6)`,
		lock, request.OwnerID, pathTTLMS, request.Mode, request.Scope, request.RequestID).Scan(&status, &id, &token)
	p.note(err)
	if err != nil || status != "granted" || p.warned {
		return lease, false
	}
	lease.LeaseID, lease.FencingToken = *id, *token
	return lease, true
}

// note notes an error that no fault explains.
func (p *sqlPath) note(err error) {
	if surprise := surpriseOf(err); surprise != nil {
		p.w.journal.Unexpected(fmt.Sprintf("sql: %v", surprise))
	}
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

func (p *sqlPath) write(ctx context.Context, a attempt) answer {
	return p.transact(ctx, func(tx pgx.Tx) (replayed bool, err error) {
		var leaseID *string
		if a.leaseID != "" {
			leaseID = &a.leaseID
		}
		var digest []byte // without one, guard has another plan
		if a.sequence%2 == 0 {
			digest = []byte(a.value)[:min(len(a.value), 64)]
		}
		var admitted bool
		err = tx.QueryRow(ctx, "select fence.guard($1, $2, $3, $4, $5)", a.resource, a.token, a.sequence, leaseID, digest).
			Scan(&admitted)
		if err != nil || !admitted {
			return err == nil, err
		}
		return false, p.insert(ctx, tx, a)
	})
}

// bare inserts a row, or changes all, without a guard. Where there is no row, there is nothing to change.
func (p *sqlPath) bare(ctx context.Context, a attempt) answer {
	changes := p.random.IntN(2) == 0
	return p.transact(ctx, func(tx pgx.Tx) (bool, error) {
		if !changes {
			return false, p.insert(ctx, tx, a)
		}
		tag, err := tx.Exec(ctx, "update public.chaos_rows set value = $1 where resource = $2", a.value, a.resource)
		if err == nil && tag.RowsAffected() == 0 {
			return false, pgx.ErrNoRows
		}
		return false, err
	})
}

func (p *sqlPath) insert(ctx context.Context, tx pgx.Tx, a attempt) error {
	parts := strings.Split(a.resource, "/")
	_, err := tx.Exec(ctx, insertRow, parts[1], parts[3], parts[4], a.key, a.value, a.token, a.sequence)
	return err
}

// transact runs a transaction. Its work returns true if it was committed before.
func (p *sqlPath) transact(ctx context.Context, work func(pgx.Tx) (replayed bool, err error)) answer {
	conn := p.connected(ctx)
	if conn == nil {
		return answer{verdict: notApplied}
	}
	level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[p.random.IntN(3)]
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		p.end()
		return answer{verdict: notApplied, surprise: surpriseOf(err)}
	}
	if p.random.IntN(3) == 0 { // its snapshot may be older than the grants that come
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
			return answer{verdict: unknown}
		}
		if errors.Is(err, pgx.ErrNoRows) || codeOf(err) == "" || !strings.HasPrefix(codeOf(err), "LF1") {
			return answer{verdict: notApplied, surprise: surpriseOf(err)}
		}
		return answer{verdict: refused}
	}
	p.warned = false
	if err := tx.Commit(ctx); err != nil {
		p.end()
		if codeOf(err) != "" && !strings.HasPrefix(codeOf(err), "57") { // the server says that it was not committed
			return answer{verdict: notApplied, surprise: surpriseOf(err)}
		}
		return answer{verdict: unknown}
	}
	if p.warned { // the wait for the standby was canceled
		return answer{verdict: unknown}
	}
	return answer{verdict: admitted, replayed: replayed}
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

func (p *sqlPath) release(ctx context.Context, lease api.Lease) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn := p.connected(ctx)
	if conn == nil {
		return false
	}
	p.warned = false
	var status string
	err := conn.QueryRow(ctx, "select status from fence.release($1, $2, $3, $4)", lease.Lock, lease.OwnerID, lease.LeaseID,
		lease.FencingToken).Scan(&status)
	p.note(err)
	return status == "released" && !p.warned
}
