package top

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// rowsMax is how many rejections and locks are read at once; more than a terminal shows.
const rowsMax = 200

// Snapshot is what the gateway said at one moment.
type Snapshot struct {
	Overview   api.Overview
	Rejections []api.Rejection // latest first
	Locks      []api.Lock      // the longest queues first
}

// Source reads snapshots.
type Source struct {
	client *lockclient.Client
}

// NewSource reads from the gateways of client.
func NewSource(client *lockclient.Client) Source { return Source{client} }

// Read returns what there is now, with the points of so long a time. It returns the errors of lockclient.API.
func (s Source) Read(ctx context.Context, span time.Duration) (Snapshot, error) {
	var snapshot Snapshot
	var err error
	if snapshot.Overview, err = s.client.API().Overview(ctx, span); err != nil {
		return snapshot, err
	}
	if snapshot.Overview.Database.State == api.DatabaseUnavailable {
		return snapshot, nil // there is nothing else to be had
	}
	rejections, err := s.client.API().Rejections(ctx, lockclient.RejectionsQuery{LastSeen: true, Limit: rowsMax})
	if err != nil {
		return snapshot, err
	}
	locks, err := s.client.API().Locks(ctx, lockclient.LocksQuery{Sort: "queue", Order: "desc", Limit: rowsMax})
	snapshot.Rejections, snapshot.Locks = rejections.Rejections, locks.Locks
	return snapshot, err
}
