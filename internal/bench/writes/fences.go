package writes

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/store"
)

// fences measures writes to ever more resources, in no order, each of which has been written before.
func (r *rig) fences(ctx context.Context) error {
	for _, count := range r.config.Fences {
		l, err := r.fill(ctx, count)
		if err != nil {
			return err
		}
		s := r.setting(l, min(r.someClients(), count))
		if err := r.compare(ctx, Case{Measure: Fences}, r.only(nameDirect, nameStore, nameHTTP), s); err != nil {
			return err
		}
	}
	return nil
}

// fill makes so many resources with a fence and a record each, as if each had been acquired and written to, and a row
// of direct's for each. A million leases through the lock service would take minutes; the fences are the same.
func (r *rig) fill(ctx context.Context, count int) (layout, error) {
	r.config.progress("making %d fences with their records", count)
	prefix := fmt.Sprintf("%s/fences-%d", r.run, count)
	var token int64
	err := r.control.QueryRow(ctx, "select nextval('fence.tokens')").Scan(&token)
	if err != nil {
		return layout{}, fmt.Errorf("take a token: %w", err)
	}
	value := make([]byte, r.config.ValueBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(value)
	err = bench.MakeFences(ctx, r.control, prefix+"/", 0, count-1,
		bench.Fence{Token: token, Key: benchKey, Value: value, ContentType: contentType})
	if err != nil {
		return layout{}, err
	}
	_, err = r.control.Exec(ctx, `
		insert into fencegate_bench.direct (resource, key, value)
		select $1 || '/' || i, $2, $3::bytea from generate_series(0, $4::integer - 1) i`, prefix, benchKey, value, count)
	if err != nil {
		return layout{}, fmt.Errorf("make the rows of direct: %w", err)
	}
	for _, sql := range []string{"vacuum (analyze) fence.fences, fence.records, fencegate_bench.direct", "checkpoint"} {
		if _, err := r.control.Exec(ctx, sql); err != nil {
			return layout{}, fmt.Errorf("make fences: %w", err)
		}
	}
	l := layout{prefix: store.Name(prefix), resources: make([]*resource, count)}
	for i := range l.resources {
		l.resources[i] = &resource{name: store.Name(fmt.Sprintf("%s/%d", prefix, i)), token: token, index: i}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
	random.Shuffle(count, func(i, j int) { l.resources[i], l.resources[j] = l.resources[j], l.resources[i] })
	return l, nil
}
