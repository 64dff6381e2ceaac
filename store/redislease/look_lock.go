package redislease

import (
	"context"

	"github.com/fencegate/fencegate/store"
)

// lockLeasesMax bounds the leases on one lock: there is one, or none.
const lockLeasesMax = 10

// Look tells the database if the lease on a lock has ended. It returns ErrUnavailable.
func (l *Leases) Look(ctx context.Context, lock store.Name) error {
	believed, err := l.db.ProvidedLeases(ctx, l.config.Provider, lock, lockLeasesMax)
	if err != nil || len(believed) == 0 {
		return err
	}
	lefts, err := l.Left(ctx, believed)
	if err != nil {
		return err
	}
	var ended []store.SeenLease
	for i, ref := range believed {
		if lefts[i] <= 0 {
			ended = append(ended, store.SeenLease{LeaseRef: ref})
		}
	}
	if len(ended) == 0 {
		return nil
	}
	return l.db.SettleLeases(ctx, ended)
}
