package store

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Sign is how a database was found to be in an older state than one that was seen before.
type Sign string

// The signs.
const (
	// SignTimeline: its timeline is lower than one that was seen: an old primary is back.
	SignTimeline Sign = "timeline"
	// SignSystem: it is a cluster that was left for another one.
	SignSystem Sign = "system"
	// SignTokens: its token sequence is lower than it was: older files are back, or a sibling that was promoted apart.
	SignTokens Sign = "tokens"
	// SignSuperseded: a gateway has marked it, or says so now.
	SignSuperseded Sign = "superseded"
	// SignStatement: a statement ended on a database after another one had taken over from it.
	SignStatement Sign = "statement"
	// SignClient: a granted token is not greater than one that the client knows of.
	SignClient Sign = "client"
)

// Signs are all that there are.
var Signs = []Sign{SignTimeline, SignSystem, SignTokens, SignSuperseded, SignStatement, SignClient}

// WentBackError is a database that is in an older state than one that was seen before. It is ErrDatabaseWentBack.
type WentBackError struct {
	Sign Sign
	What string // what was seen before, and what there is now
}

func (e *WentBackError) Error() string { return fmt.Sprintf("%v: %s", ErrDatabaseWentBack, e.What) }

// Is reports whether target is ErrDatabaseWentBack.
func (e *WentBackError) Is(target error) bool { return target == ErrDatabaseWentBack }

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

// lineage is what a Store has seen of the databases behind its URL, which may lead to several: hosts are frozen and
// come back, and backups are restored. A database is used only if it is no older state of one that was seen. Each
// newer one begins an era. Connections of earlier eras are not used any more.
type lineage struct {
	era         atomic.Int64
	newestToken atomic.Int64 // the greatest value of the token sequence that a grant has shown
	counts      [6]atomic.Uint64

	mu      sync.Mutex
	current state
	newest  map[int64]state // of each system
}

// tokensSlack is by how much the token sequence may be lower than it was. A database in an older state is lower by a
// jump (2^32) at least; a sequence that somebody has set back a little is no such database, and mint grants no token
// twice on it.
const tokensSlack = 1 << 31

// judgement is what a state means to the lineage.
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
		return &WentBackError{SignSuperseded, fmt.Sprintf("a gateway has marked it: timeline %d of system %d has taken over",
			now.supersededByTimeline, now.supersededBySystem)}
	case known && now.system != l.current.system && now.accepted <= newest.accepted:
		return &WentBackError{SignSystem, fmt.Sprintf("it is %v, and %v has taken over", now, l.current)}
	case known && now.before(newest):
		return &WentBackError{SignTimeline, fmt.Sprintf("it is %v, and %v has taken over", now, newest)}
	case now.newestToken != 0 && now.newestToken+tokensSlack < newestToken:
		return tokensWentBack(now.newestToken, newestToken)
	}
	return nil
}

// minted notes what the token sequence was at after a grant that was committed. It returns a WentBackError if that is
// far below newestToken, which is that of the lineage before the grant was sent.
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

func tokensWentBack(now, before int64) error {
	return &WentBackError{SignTokens, fmt.Sprintf("its newest token is %d, and %d was granted before", now, before)}
}
