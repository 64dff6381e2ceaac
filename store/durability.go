package store

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotReplicated says that a commit was made, and that its wait for a synchronous standby was ended before one had
// confirmed it: a failover may take the commit back. It is always an ErrUnavailable, too, of unknown outcome.
var ErrNotReplicated = errors.New("the commit was made, and its wait for a synchronous standby was ended: " +
	"a failover may take it back")

// notReplicated is the key of a warning in a connection's own data.
const notReplicated = "fencegate: not replicated"

// noteNotReplicated has a connection remember the warning with which PostgreSQL reports such a commit; apart from it
// the commit looks like any other. The warning comes before the statement ends, so a caller that has read to the end of
// the statement finds it. The configuration of the role must not hide it (client_min_messages).
func noteNotReplicated(config *pgx.ConnConfig) {
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if isNotReplicated(notice) {
			conn.CustomData()[notReplicated] = notice
		}
	}
}

// isNotReplicated tells the warning from those that the triggers of users' tables may raise, which say where they come
// from. That of a commit comes from no function. Its code is 01000 where the wait was canceled, and 57P01 where the
// session was ended.
func isNotReplicated(notice *pgconn.Notice) bool {
	return notice.SeverityUnlocalized == "WARNING" && notice.Where == "" &&
		(notice.Code == "01000" || notice.Code == "57P01")
}

// takeNotReplicated returns ErrNotReplicated, as an UnavailableError, if a connection remembers such a commit, and has
// it forget that.
func takeNotReplicated(conn *pgconn.PgConn) error {
	notice, found := conn.CustomData()[notReplicated].(*pgconn.Notice)
	if !found {
		return nil
	}
	delete(conn.CustomData(), notReplicated)
	return &UnavailableError{OutcomeUnknown, fmt.Errorf("%w (%s %s)", ErrNotReplicated, notice.Code, notice.Message)}
}
