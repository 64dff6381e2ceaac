package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store/internal/timing"
	"github.com/fencegate/fencegate/store/postgres"
)

const (
	// listenerCheck is how often the listener checks that the database is still reachable, and still the same one.
	listenerCheck = time.Second
	// listenerTimeout bounds each of its statements: a server that takes longer may have been replaced by another.
	listenerTimeout = 2 * time.Second
	reconnectMin    = 50 * time.Millisecond
	reconnectMax    = time.Second
)

// errReplaced says that the database was replaced beneath the connection: a dump was restored in place.
var errReplaced = errors.New("the database is another one than before")

// listener keeps one connection on which the database notifies this process. Notifications sent while it has none are
// lost, so its users look for changes at every connect, and by polling. A connection counts as lost when the database
// was replaced beneath it, or its identity can't be read.
//
// It also detects that a frozen or unreachable server was replaced: its next connection leads to another database, and
// the Store closes those to the former server, which would not fail by themselves.
type listener struct {
	store     *postgres.Store
	channels  []string
	onConnect func()
	onLost    func()
	onNotify  func(channel, payload string)

	connected atomic.Bool
	connects  atomic.Uint64
}

func newListener(on *postgres.Store, channels ...string) *listener {
	return &listener{store: on, channels: channels}
}

// run listens until ctx ends. It connects again when the connection is lost.
func (l *listener) run(ctx context.Context, onError func(error)) {
	pause := reconnectMin
	for ctx.Err() == nil {
		begun := time.Now()
		err := l.listen(ctx)
		if l.connected.Swap(false) {
			l.onLost()
			if time.Since(begun) > reconnectMax {
				pause = reconnectMin
			}
		}
		if ctx.Err() != nil {
			return
		}
		onError(fmt.Errorf("the listening connection is lost: %w", err))
		timing.Sleep(ctx, pause)
		pause = min(2*pause, reconnectMax)
	}
}

// listen serves one connection until it is lost.
func (l *listener) listen(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer postgres.CloseSoon(conn)
	server := l.store.ServerOf(conn)
	identity, err := l.identify(ctx, conn)
	if err != nil {
		return err
	}
	l.connects.Add(1)
	l.onConnect()
	l.connected.Store(true)
	for {
		if err := l.serve(ctx, conn, time.Now().Add(listenerCheck)); err != nil {
			return err
		}
		switch now, err := l.identify(ctx, conn); {
		case err != nil:
			l.store.Suspect(server)
			return err
		case now != identity:
			return errReplaced
		}
	}
}

// serve passes notifications to onNotify until a time.
func (l *listener) serve(ctx context.Context, conn *pgx.Conn, until time.Time) error {
	serving, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		notification, err := conn.WaitForNotification(serving)
		switch {
		case err == nil:
			l.onNotify(notification.Channel, notification.Payload)
		case ctx.Err() == nil && serving.Err() != nil:
			return nil
		default:
			return err
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config := l.store.ConnConfig()
	config.RuntimeParams["application_name"] = "fencegate listener"
	conn, err := pgx.ConnectConfig(ctx, config) // each host within its connect timeout
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listenerTimeout)
	defer cancel()
	for _, channel := range l.channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			postgres.CloseSoon(conn)
			return nil, err
		}
	}
	return conn, nil
}

func (l *listener) identify(ctx context.Context, conn *pgx.Conn) (postgres.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, listenerTimeout)
	defer cancel()
	return l.store.Identify(ctx, conn)
}
