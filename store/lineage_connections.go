package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/migrations"
)

const (
	// eraKey is where a connection keeps the era in which it was judged. One to a standby, or to a database without the
	// schema, has none.
	eraKey = "fencegate era"
	// supersedeTimeout bounds the statement that marks a database.
	supersedeTimeout = time.Second
)

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
		era, judged := eraOf(conn)
		if !judged { // the database may have been promoted or migrated since
			_, err := s.judge(ctx, conn.PgConn())
			return err == nil, nil
		}
		return era == s.lineage.era.Load(), nil
	}
}

func eraOf(conn *pgx.Conn) (era int64, judged bool) {
	era, judged = conn.PgConn().CustomData()[eraKey].(int64)
	return era, judged
}

// judge reads the state of the database that a connection leads to; that of a standby, or without the schema, is zero.
// It returns a WentBackError if the database is not to be used, and has marked it then. In one that has taken over, it
// makes the tokens jump.
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
	}
	conn.CustomData()[eraKey] = judged.era
	if now.newestToken == 0 {
		// Before the first grant, in a transaction of its own. Where that fails, a grant jumps.
		_, _ = conn.Exec(ctx, "select fence.note_jump()").ReadAll()
	}
	return now, nil
}

// judgeAnew judges a connection outside the pool again if there has been another era since.
func (s *Store) judgeAnew(ctx context.Context, conn *pgx.Conn) error {
	if era, judged := eraOf(conn); !judged || era == s.lineage.era.Load() {
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

// supersede marks a database, so that no gateway uses it, also one that has seen no other; unless an operator has
// accepted it since it was judged. Where that fails, each gateway has to find out by itself.
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
	era, judged := eraOf(conn)
	if !judged || era == s.lineage.era.Load() {
		return nil
	}
	late := &WentBackError{SignStatement, "it has answered after another one had taken over"}
	s.countWentBack(ctx, late)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), supersedeTimeout)
	defer cancel()
	_, _ = s.judge(ctx, conn.PgConn()) // which marks it
	return &UnavailableError{OutcomeUnknown, late}
}

// notice has all connections judged anew if the database has refused a statement since another one has taken over.
func (s *Store) notice(ctx context.Context, err error) error {
	if errors.Is(err, ErrDatabaseWentBack) {
		s.lineage.era.Add(1)
		s.countWentBack(ctx, err)
	}
	return err
}

// minted notes the token sequence after a grant. It returns ErrUnavailable if the sequence went back, which only
// happens where a pooler hides to which database a connection leads. The lease that was granted there reaches nobody.
func (s *Store) minted(ctx context.Context, at, newestToken int64) error {
	if err := s.lineage.minted(at, newestToken); err != nil {
		return s.failed(s.notice(ctx, &UnavailableError{OutcomeUnknown, err}))
	}
	return nil
}

// RefuseGrant returns ErrUnavailable for a lease whose token is not greater than one that the client knows of. It says
// nothing about the database to others: clients may be wrong.
func (s *Store) RefuseGrant(ctx context.Context, lease Lease, newestToken int64) error {
	refused := &WentBackError{SignClient, fmt.Sprintf(
		"it has granted token %d on %s, and newest_token is %d", lease.Token, lease.Lock, newestToken)}
	s.countWentBack(ctx, refused)
	return s.failed(NotApplied(refused))
}

func (s *Store) countWentBack(ctx context.Context, err error) {
	if refused, ok := errors.AsType[*WentBackError](err); ok {
		s.lineage.counts[slices.Index(Signs, refused.Sign)].Add(1)
		s.config.Logger.WarnContext(ctx, "database went back", "sign", string(refused.Sign), "error", err)
	}
}

// WentBack returns how often each sign of an older database was seen.
func (s *Store) WentBack() map[Sign]uint64 {
	got := map[Sign]uint64{}
	for i, sign := range Signs {
		got[sign] = s.lineage.counts[i].Load()
	}
	return got
}
