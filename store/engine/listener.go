package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// listenerCheck is how often the listener checks that the database is still there, and still the same one.
	listenerCheck   = time.Second
	listenerTimeout = 5 * time.Second
	reconnectMin    = 50 * time.Millisecond
	reconnectMax    = 2 * time.Second
)

// errReplaced says that the database was replaced beneath the connection: a dump was restored in place.
var errReplaced = errors.New("the database is another one than before")

// listener is one connection on which the database notifies this process. What was sent while it had none is lost, so
// whoever depends on it looks for himself at every connect, and now and then besides. A database that was replaced beneath the connection,
// or whose identity can't be read, counts as lost.
type listener struct {
	store     *store.Store
	config    *pgx.ConnConfig
	channels  []string
	onConnect func()
	onLost    func()
	onNotify  func(channel, payload string)

	connected atomic.Bool
	connects  atomic.Uint64 // from the beginning
}

// run listens until ctx ends, and connects anew whenever the connection is lost.
func (l *listener) run(ctx context.Context, onError func(error)) {
	wait := reconnectMin
	for ctx.Err() == nil {
		begun := time.Now()
		err := l.listen(ctx)
		if l.connected.Swap(false) {
			l.onLost()
			if time.Since(begun) > reconnectMax {
				wait = reconnectMin
			}
		}
		if ctx.Err() != nil {
			return
		}
		onError(fmt.Errorf("the listening connection is lost: %w", err))
		timing.Sleep(ctx, wait)
		wait = min(2*wait, reconnectMax)
	}
}

// listen serves one connection; it returns when that is lost.
func (l *listener) listen(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer closeNow(conn)
	identity, err := l.identify(ctx, conn)
	if err != nil {
		return err
	}
	l.connected.Store(true)
	l.connects.Add(1)
	l.onConnect()
	for {
		if err := l.serve(ctx, conn, time.Now().Add(listenerCheck)); err != nil {
			return err
		}
		switch now, err := l.identify(ctx, conn); {
		case err != nil:
			return err
		case now != identity:
			return errReplaced
		}
	}
}

// serve hands on notifications until a time.
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
	ctx, cancel := context.WithTimeout(ctx, listenerTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return nil, err
	}
	for _, channel := range l.channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			closeNow(conn)
			return nil, err
		}
	}
	return conn, nil
}

func (l *listener) identify(ctx context.Context, conn *pgx.Conn) (store.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, listenerTimeout)
	defer cancel()
	return l.store.Identify(ctx, conn)
}

// closeNow says goodbye, but does not wait long for a database that hangs.
func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
