package soak

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// useNewNames locks, writes to and releases names that were never used before, at the rate of the configuration, or
// slower if the gateways are.
func (r *rig) useNewNames(ctx context.Context) error {
	prefix := "soak/" + strings.ToLower(rand.Text()[:10])
	tick := time.NewTicker(time.Second / time.Duration(r.config.Names))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := useName(ctx, r.clients[i%len(r.clients)].API(), fmt.Sprintf("%s/%d", prefix, i))
		if err != nil && ctx.Err() == nil && !errors.Is(err, lockclient.ErrUnavailable) {
			return fmt.Errorf("new name %d: %w", i, err)
		}
	}
}

func useName(ctx context.Context, gateway *lockclient.API, name string) error {
	lease, err := gateway.Acquire(ctx, name, api.AcquireRequest{OwnerID: "owner of " + name})
	if err != nil {
		return err
	}
	_, err = gateway.Put(ctx, name, "state", lockclient.Write{
		Token: api.FencingToken{Token: lease.FencingToken}, ContentType: "text/plain", Value: []byte("new"),
	})
	if err != nil {
		return err
	}
	return gateway.Release(ctx, name, api.ReleaseRequest{
		OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
	})
}
