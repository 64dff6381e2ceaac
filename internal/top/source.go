package top

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// rowsMax is how many rejections and locks are read at once; more than a terminal shows.
const rowsMax = 200

// Snapshot is what the gateway said at one moment.
type Snapshot struct {
	Overview   api.Overview
	Rejections []api.Rejection // latest first
	Locks      []api.Lock      // the longest queues first
}

// Read returns what there is now, with the points of so long a time. It returns the errors of lockclient/admin.
func Read(ctx context.Context, gateway *admin.Client, span time.Duration) (snapshot Snapshot, err error) {
	if snapshot.Overview, err = gateway.Overview(ctx, span); err != nil {
		return snapshot, err
	}
	if snapshot.Overview.Database.State == api.DatabaseUnavailable {
		return snapshot, nil // there is nothing else to be had
	}
	rejections, err := gateway.Rejections(ctx, admin.RejectionsQuery{LastSeen: true, Limit: rowsMax})
	if err != nil {
		return snapshot, err
	}
	locks, err := gateway.Locks(ctx, admin.LocksQuery{Sort: "queue", Order: "desc", Limit: rowsMax})
	snapshot.Rejections, snapshot.Locks = rejections.Rejections, locks.Locks
	return snapshot, err
}
