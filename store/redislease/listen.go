package redislease

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// silenceMax is how many probes in a row a connection for published releases may leave without an answer.
const silenceMax = 2

// listen wakes waiters here when a lease ends anywhere. It connects again when the connection is lost.
func (l *Leases) listen(ctx context.Context, s *server) {
	for ctx.Err() == nil {
		l.listenOnce(ctx, s)
		s.listens.Store(false)
		timing.Sleep(ctx, probeInterval)
	}
}

// listenOnce listens until the connection is lost, or the server does not answer on it. What was published before it
// listens is lost, so it wakes all waiters then.
func (l *Leases) listenOnce(ctx context.Context, s *server) {
	subscription := s.client.Subscribe(ctx, l.channel())
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	for silence := 0; silence < silenceMax; {
		received, err := subscription.ReceiveTimeout(ctx, probeInterval)
		var network net.Error
		switch {
		case err == nil:
			silence = 0
		case !errors.As(err, &network) || !network.Timeout() || subscription.Ping(ctx) != nil:
			return
		default:
			silence++
		}
		switch received := received.(type) {
		case *redis.Subscription:
			s.listens.Store(true)
			l.queues.allWoken()
		case *redis.Message:
			l.queues.woken(store.Name(received.Payload))
		}
	}
}

// listens reports whether this process hears of the end of each lease. With several servers it must listen to all: the last
// one that deletes the key makes the lock free.
func (l *Leases) listens() bool {
	for _, s := range l.servers {
		if !s.listens.Load() {
			return false
		}
	}
	return true
}
