package load

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway/api"
)

// lockFence locks the fence of one resource from another database session, again and again, while clients keep acquiring its lock and
// writing to it.
func (p *pressure) lockFence(ctx context.Context) {
	var lease api.Lease
	for err := error(pgx.ErrNoRows); err != nil && ctx.Err() == nil; {
		lease, err = p.acquire(ctx, 0, p.name, api.AcquireRequest{})
	}
	locking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		for locking.Err() == nil {
			if err := p.holdFence(locking); err != nil && locking.Err() == nil {
				p.run.tally.surprise(fmt.Sprintf("the fence of %s could not be kept locked: %v", p.name, err))
				return
			}
		}
	}()
	p.many(locking, fenceClients, func(ctx context.Context, client int) {
		if client%2 == 0 {
			p.put(ctx, client, api.FencingToken{Token: lease.FencingToken})
			return
		}
		_, _ = p.acquire(ctx, client, p.name, api.AcquireRequest{})
	})
}

// holdFence keeps the fence row locked for a minute.
func (p *pressure) holdFence(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.config.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select from fence.fences where resource = $1 for update", p.name); err != nil {
			return err
		}
		sleep(ctx, fenceLocked)
		return nil
	})
}
