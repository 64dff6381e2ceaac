package redislease

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/store"
)

// LeftOf is left.
func LeftOf(times []time.Duration) (time.Duration, bool) { return left(times) }

// ReserveTwice sends a reservation twice, and returns the answers of the first server.
func (l *Leases) ReserveTwice(ctx context.Context, request store.AcquireRequest) (answers [2]string, err error) {
	text, err := newValue(request, store.NewLeaseID(l.config.Provider)).encode()
	for i := range answers {
		if err != nil {
			break
		}
		var answer reply
		answer, err = l.servers[0].run(ctx, reserveScript, l.reserveKeys(request.Lock), text, reservationTTL.Milliseconds(), l.restMS())
		answers[i] = answer.text(0)
	}
	return answers, err
}
