package main

import (
	"context"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type lockGetCmd struct {
	clientFlags
	Lock string `arg:"" help:"Name of the lock. A dot: the one in FENCEGATE_LOCK."`
}

// Run shows a lock.
func (c *lockGetCmd) Run(ctx context.Context, con *console) error {
	lock, err := resource(c.Lock)
	if err != nil {
		return err
	}
	return answer(ctx, con, c.clientFlags, lockFields,
		func(ctx context.Context, client *lockclient.Client) (api.Lock, error) {
			return client.API().Lock(ctx, lock)
		})
}

func lockFields(lock api.Lock) []field {
	fields := []field{
		{"lock", lock.Lock},
		{"state", lock.State},
		{"fencing_token", strconv.FormatInt(lock.FencingToken, 10)},
	}
	for _, holder := range lock.Holders {
		fields = append(fields,
			field{"owner_id", holder.OwnerID},
			field{"ttl", (time.Duration(holder.TTLMS) * time.Millisecond).String()},
			field{"granted_at", clock(holder.GrantedAt)},
			field{"expires_at", clock(holder.ExpiresAt)})
		fields = append(fields, optionalFields(holder.Mode, holder.Scope, "", holder.Metadata)...)
	}
	for _, waiter := range lock.Queue {
		fields = append(fields, field{"waiting", waiter.OwnerID + " (" + waiter.Mode + ") since " + clock(waiter.QueuedAt)})
	}
	return fields
}
