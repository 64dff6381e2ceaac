package writes

import (
	"context"
	"fmt"
	"math/rand/v2"

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
	for _, sql := range []string{
		`insert into fence.fences (resource, granted_token, open)
			select $1 || '/' || i, $3::bigint, true from generate_series(0, $2::integer - 1) i where $4::bytea is not null`,
		`insert into fence.records (resource, key, version, fencing_token, sequence, updated_at, content_type, value)
			select $1 || '/' || i, '` + benchKey + `', 1, $3::bigint, 0, now(), '` + contentType + `', $4::bytea
			from generate_series(0, $2::integer - 1) i`,
		`insert into fencegate_bench.direct (resource, key, value)
			select $1 || '/' || i, '` + benchKey + `', $4::bytea from generate_series(0, $2::integer - 1) i where $3::bigint > 0`,
	} {
		if _, err := r.control.Exec(ctx, sql, prefix, count, token, value); err != nil {
			return layout{}, fmt.Errorf("make fences: %w", err)
		}
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
