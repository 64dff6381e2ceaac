package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
)

// state is the state of a database that is not a standby, as fence.lineage says.
type state struct {
	system   int64
	timeline int64
	tokens   int64 // the oid of the token sequence
	accepted int64 // when an operator accepted it, in µs; 0: never

	supersededBySystem, supersededByTimeline int64 // 0: it is not
	newestToken                              int64 // of the sequence; 0: it will jump before the next
}

func (s state) String() string { return fmt.Sprintf("timeline %d of system %d", s.timeline, s.system) }

// before reports whether another state of the same system is newer: an operator accepted it later, or else it was
// promoted more often.
func (s state) before(other state) bool {
	if s.accepted != other.accepted {
		return s.accepted < other.accepted
	}
	return s.timeline < other.timeline
}

// lineage is what a Store knows of the databases behind its URL. There may be several: hosts are frozen and come back,
// and backups are restored. A Store uses no database that is an older state of one that it has seen. Each newer
// database begins an era. Connections of earlier eras are not used any more.
type lineage struct {
	era         atomic.Int64
	newestToken atomic.Int64 // the greatest value of the token sequence that a grant has shown
	counts      [6]atomic.Uint64

	mu      sync.Mutex
	current state
	newest  map[int64]state // of each system
}

// tokensSlack is by how much the token sequence may fall. In an older state of the database it is lower by a jump
// (2^32) at least. A smaller fall means that somebody has set the sequence back a little: mint still grants no token
// twice.
const tokensSlack = 1 << 31

// judgement is the result of comparing a state with the lineage.
type judgement struct {
	era     int64
	current state // that was the current one before
	changed bool  // the state is another one's, and newer
}

// judge decides whether a database is to be used; if not, it returns a WentBackError. newestToken is that of the lineage
// before the database was asked for its state.
func (l *lineage) judge(now state, newestToken int64) (judgement, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current
	if err := l.refuse(now, newestToken); err != nil {
		if now.system == current.system && now.timeline == current.timeline {
			l.era.Add(1) // other connections lead to the same database: they are judged anew
		}
		return judgement{current: current}, err
	}
	newest, known := l.newest[now.system]
	if !known || now.system != current.system || newest.before(now) {
		l.current, l.newest[now.system] = now, now
		l.era.Add(1)
	}
	return judgement{era: l.era.Load(), current: current, changed: current != state{} && current != l.current}, nil
}

// refuse returns a WentBackError for a state that is not to be used. The caller has locked l.
func (l *lineage) refuse(now state, newestToken int64) error {
	newest, known := l.newest[now.system]
	switch {
	case now.supersededByTimeline != 0:
		return wentBack(store.SignSuperseded, "a gateway has marked it: timeline %d of system %d has taken over",
			now.supersededByTimeline, now.supersededBySystem)
	case known && now.system != l.current.system && now.accepted <= newest.accepted:
		return wentBack(store.SignSystem, "it is %v, and %v has taken over", now, l.current)
	case known && now.before(newest):
		return wentBack(store.SignTimeline, "it is %v, and %v has taken over", now, newest)
	case now.newestToken != 0 && now.newestToken+tokensSlack < newestToken:
		return tokensWentBack(now.newestToken, newestToken)
	}
	return nil
}

// minted notes the token sequence after a committed grant. It returns a WentBackError if that is far below newestToken,
// which is that of the lineage before the grant was sent.
func (l *lineage) minted(at, newestToken int64) error {
	if at+tokensSlack < newestToken {
		return tokensWentBack(at, newestToken)
	}
	for {
		seen := l.newestToken.Load()
		if at <= seen || l.newestToken.CompareAndSwap(seen, at) {
			return nil
		}
	}
}

func wentBack(sign store.Sign, format string, args ...any) error {
	return &store.WentBackError{Sign: sign, What: fmt.Sprintf(format, args...)}
}

func tokensWentBack(now, before int64) error {
	return wentBack(store.SignTokens, "its newest token is %d, and %d was granted before", now, before)
}

// supersedeTimeout bounds the statement that marks a database.
const supersedeTimeout = time.Second

// judgeConnections has each connection judged when it is made, so that of a URL with several hosts the next one is
// tried. The pool hands out only connections of this era.
func (s *Store) judgeConnections(config *pgxpool.Config) {
	validate := config.ConnConfig.ValidateConnect
	config.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if validate != nil {
			if err := validate(ctx, conn); err != nil {
				return err
			}
		}
		_, err := s.judge(ctx, conn)
		return err
	}
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (ok bool, err error) {
		era := eraOf(conn)
		if era == 0 { // the database may have been promoted or migrated since, or be frozen by now
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			_, err := s.judge(ctx, conn.PgConn())
			return err == nil, nil
		}
		return era == s.lineage.era.Load(), nil
	}
}

func eraOf(conn *pgx.Conn) int64 { return connectionOf(conn.PgConn()).era.Load() }

// judge reads the state of the database that a connection leads to; that of a standby, or without the schema, is zero.
// It returns a WentBackError if the database is not to be used, and has marked it then. For one that has taken over, it
// closes the connections to the one before, and makes the tokens jump.
func (s *Store) judge(ctx context.Context, conn *pgconn.PgConn) (state, error) {
	newestToken := s.lineage.newestToken.Load()
	now, err := readState(ctx, conn)
	if err != nil || now == (state{}) {
		return now, err
	}
	judged, err := s.lineage.judge(now, newestToken)
	if err != nil {
		s.countWentBack(ctx, err)
		s.supersede(ctx, conn, now, judged.current)
		return now, err
	}
	if judged.changed {
		s.config.Logger.WarnContext(ctx, "database changed", "from", judged.current.String(), "to", now.String())
		s.connections.abandon(judged.era)
	}
	connectionOf(conn).era.Store(judged.era)
	if now.newestToken == 0 {
		// Before the first grant, in a transaction of its own. Where that fails, a grant jumps.
		_, _ = conn.Exec(ctx, "select fence.note_jump()").ReadAll()
	}
	return now, nil
}

// judgeAnew judges a connection outside the pool again if there has been another era since.
func (s *Store) judgeAnew(ctx context.Context, conn *pgx.Conn) error {
	if era := eraOf(conn); era == 0 || era == s.lineage.era.Load() {
		return nil
	}
	_, err := s.judge(ctx, conn.PgConn())
	return err
}

// readState reads what is there by the simple protocol, which leaves nothing behind.
func readState(ctx context.Context, conn *pgconn.PgConn) (state, error) {
	const sql = `
		select l.system_identifier, l.timeline, l.tokens_oid::bigint,
			coalesce((extract(epoch from l.accepted_at) * 1000000)::bigint, 0),
			coalesce(l.superseded_by_system, 0), coalesce(l.superseded_by_timeline, 0), coalesce(l.newest_token, 0)
		from fence.lineage() l where l.system_identifier is not null`
	results, err := conn.Exec(ctx, sql).ReadAll()
	switch {
	case errors.Is(classify(err), migrations.ErrNotMigrated):
		return state{}, nil
	case err != nil:
		return state{}, fmt.Errorf("read which database it is: %w", err)
	case len(results[0].Rows) == 0:
		return state{}, nil
	}
	var now state
	for i, field := range []*int64{
		&now.system, &now.timeline, &now.tokens, &now.accepted,
		&now.supersededBySystem, &now.supersededByTimeline, &now.newestToken,
	} {
		if *field, err = strconv.ParseInt(string(results[0].Rows[0][i]), 10, 64); err != nil {
			return state{}, fmt.Errorf("read which database it is: %w", err)
		}
	}
	return now, nil
}

// supersede marks a database, so that no gateway uses it, even one that has seen no other. It does not if an operator
// has accepted the database since it was judged. If marking fails, each gateway has to find out by itself.
func (s *Store) supersede(ctx context.Context, conn *pgconn.PgConn, now, by state) {
	if now.supersededByTimeline != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, supersedeTimeout)
	defer cancel()
	mark := fmt.Sprintf("select fence.supersede(%d, %d, %d)", by.system, by.timeline, now.accepted)
	_, _ = conn.Exec(ctx, mark).ReadAll()
}

// endedLate returns ErrUnavailable, of unknown outcome, for a statement that the database has answered after another
// one had taken over: what it has committed may be lost.
func (s *Store) endedLate(ctx context.Context, conn *pgx.Conn) error {
	if era := eraOf(conn); era == 0 || era == s.lineage.era.Load() {
		return nil
	}
	late := wentBack(store.SignStatement, "it has answered after another one had taken over")
	s.countWentBack(ctx, late)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), supersedeTimeout)
	defer cancel()
	_, _ = s.judge(ctx, conn.PgConn()) // which marks it
	return store.MayBeApplied(late)
}

// notice begins a new judgement of all connections if the database has refused a statement as superseded.
func (s *Store) notice(ctx context.Context, err error) error {
	if errors.Is(err, store.ErrDatabaseWentBack) {
		s.lineage.era.Add(1)
		s.countWentBack(ctx, err)
	}
	return err
}

// minted notes the token sequence after a grant. It returns ErrUnavailable if the sequence went back, which only
// happens where a pooler hides to which database a connection leads. The lease that was granted there reaches nobody.
func (s *Store) minted(ctx context.Context, at, newestToken int64) error {
	if err := s.lineage.minted(at, newestToken); err != nil {
		return s.failed(s.notice(ctx, store.MayBeApplied(err)))
	}
	return nil
}

// RefuseGrant returns ErrUnavailable for a lease whose token is not greater than one that the client knows. It does not
// affect other clients: this one may be wrong.
func (s *Store) RefuseGrant(ctx context.Context, lease store.Lease, newestToken int64) error {
	refused := wentBack(store.SignClient,
		"it has granted token %d on %s, and newest_token is %d", lease.Token, lease.Lock, newestToken)
	s.countWentBack(ctx, refused)
	return s.failed(store.NotApplied(refused))
}

func (s *Store) countWentBack(ctx context.Context, err error) {
	if refused, ok := errors.AsType[*store.WentBackError](err); ok {
		s.lineage.counts[slices.Index(store.Signs, refused.Sign)].Add(1)
		s.config.Logger.WarnContext(ctx, "database went back", "sign", string(refused.Sign), "error", err)
	}
}

// WentBack returns how often each sign of an older database was seen.
func (s *Store) WentBack() map[store.Sign]uint64 {
	got := map[store.Sign]uint64{}
	for i, sign := range store.Signs {
		got[sign] = s.lineage.counts[i].Load()
	}
	return got
}

// Identity identifies a database, as fence.lineage describes it.
type Identity struct {
	System   int64
	Timeline int32
	Tokens   uint32
}

// Identify reads the Identity of a connection's database. A standby, or a database without the schema, has none: it
// becomes another one when it is promoted, migrated or restored. It returns ErrUnavailable, which is
// ErrDatabaseWentBack if the database is not to be used any more.
func (s *Store) Identify(ctx context.Context, conn *pgx.Conn) (Identity, error) {
	now, err := s.judge(ctx, conn.PgConn())
	if err != nil {
		return Identity{}, store.NotApplied(err)
	}
	return Identity{now.system, int32(now.timeline), uint32(now.tokens)}, nil
}
