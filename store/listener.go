package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// listenerPatience is how long the listener hears nothing before it asks whether the database is still there.
	listenerPatience = 5 * time.Second
	listenerTimeout  = 5 * time.Second
	reconnectMin     = 50 * time.Millisecond
	reconnectMax     = 2 * time.Second
)

// listener is one connection on which the database notifies this process. What was sent while it had none is lost, so
// whoever depends on it looks for himself at every connect, and now and then besides.
type listener struct {
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
		sleep(ctx, wait)
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
	l.connected.Store(true)
	l.connects.Add(1)
	l.onConnect()
	for {
		notification, err := await(ctx, conn)
		switch {
		case err != nil:
			return err
		case notification != nil:
			l.onNotify(notification.Channel, notification.Payload)
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

// await returns the next notification, or nil after the database has said that it is there and has none.
func await(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	patient, cancel := context.WithTimeout(ctx, listenerPatience)
	defer cancel()
	notification, err := conn.WaitForNotification(patient)
	if err == nil || ctx.Err() != nil || patient.Err() == nil {
		return notification, err
	}
	asking, stop := context.WithTimeout(ctx, listenerTimeout)
	defer stop()
	return nil, conn.Ping(asking)
}

// closeNow says goodbye, but does not wait long for a database that hangs.
func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// sleep waits, or returns earlier if ctx ends.
func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
