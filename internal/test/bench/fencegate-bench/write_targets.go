//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// writeTargetNames are the valid values of --targets, in the order in which they are opened.
var writeTargetNames = []string{
	"direct", "handmade", "store", "store-unfenced", "http", "http-pooled", "http-key", "http-tls", "array",
	"floor", "etcd", "zookeeper", "redis",
}

// open starts what the targets need. What is not on this machine is noted in the report.
func (w *writes) open(ctx context.Context) (err error) {
	w.OnClose(func() error {
		return w.Execute(context.WithoutCancel(ctx), "drop schema if exists fencegate_bench cascade")
	})
	if err := w.Execute(ctx, plainTables...); err != nil {
		return err
	}
	if w.gateway, err = w.Gateway(ctx); err != nil {
		return err
	}
	for _, of := range []struct {
		name  string
		count int
	}{{"many", w.config.Resources}, {"hot", w.config.Hot}} {
		if of.count > 0 {
			l, err := w.acquireLayout(ctx, of.name, of.count, false)
			if err != nil {
				return err
			}
			w.layouts = append(w.layouts, l)
		}
	}
	add := func(name string, t writeTarget, err error) error {
		takesPart, err := w.TakesPart(name, err)
		if takesPart {
			t.name = name
			w.targets = append(w.targets, t)
		}
		return err
	}
	for _, name := range writeTargetNames {
		if slices.Contains(w.config.Targets, name) {
			t, err := w.target(ctx, name)
			if err := add(name, t, err); err != nil {
				return err
			}
		}
	}
	for _, count := range w.config.Gateways {
		if len(w.only("http")) > 0 {
			t, err := w.fleet(ctx, count)
			if err := add(fmt.Sprintf("http x%d", count), t, err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writes) target(ctx context.Context, name string) (writeTarget, error) {
	switch name {
	case "direct":
		return w.direct(), nil
	case "handmade":
		return w.handmade(), nil
	case "store":
		return w.inProcess(w.URL), nil
	case "store-unfenced":
		return w.unfenced(ctx)
	case "http":
		return w.through(putting, w.gateway), nil
	case "http-pooled":
		return w.pooled(ctx)
	case "http-key":
		return w.keyed(ctx, nil)
	case "http-tls":
		return w.encrypted(ctx)
	case "array":
		return w.arrays(), nil
	case "floor":
		return w.floor(ctx)
	}
	return w.peer(ctx, name)
}

// plainTables are those of the targets that have some of their own, laid out as fencegate's are.
var plainTables = []string{
	"drop schema if exists fencegate_bench cascade", "create schema fencegate_bench",
	`create table fencegate_bench.direct (
		resource text collate "C", key text collate "C", value bytea not null, primary key (resource, key)
	) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)`,
	`create table fencegate_bench.records (like fencegate_bench.direct including all)
		with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)`,
	`create table fencegate_bench.fences (resource text collate "C" primary key, token bigint not null)
		with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05)`,
}

// poolSizes are the numbers of connections to try.
var poolSizes = []int{8, 16, 32, 64, 128}

// overPool is a target whose writes take a connection of a pool.
func (w *writes) overPool(
	prepare func(context.Context, *pgxpool.Pool, layout) error,
	write func(context.Context, *pgxpool.Pool, *resource, []byte) error,
) writeTarget {
	return writeTarget{tuned: poolSizes, open: func(ctx context.Context, s setting) (writeSession, error) {
		pool, err := rig.OpenPool(ctx, w.URL, s.connections)
		if err != nil {
			return writeSession{}, err
		}
		if err := prepare(ctx, pool, s.layout); err != nil {
			pool.Close()
			return writeSession{}, err
		}
		return writeSession{close: closing(pool.Close), write: func(ctx context.Context, _ int, of *writer) error {
			r, value := of.next()
			return write(ctx, pool, r, value)
		}}, nil
	}}
}

func closing(end func()) func() error {
	return func() error {
		end()
		return nil
	}
}

const upsertSQL = `
	insert into fencegate_bench.%s (resource, key, value) values ($1, $2, $3)
	on conflict (resource, key) do update set value = excluded.value`

// direct is the plain upsert.
func (w *writes) direct() writeTarget {
	upsert := fmt.Sprintf(upsertSQL, "direct")
	return w.overPool(func(context.Context, *pgxpool.Pool, layout) error { return nil },
		func(ctx context.Context, pool *pgxpool.Pool, r *resource, value []byte) error {
			_, err := pool.Exec(ctx, upsert, string(r.name), benchKey, value)
			return err
		})
}

// handmade is the fence as one writes it by hand in Go: lock the row, compare, raise it, write, commit. One statement
// after the other.
func (w *writes) handmade() writeTarget {
	upsert := fmt.Sprintf(upsertSQL, "records")
	prepare := func(ctx context.Context, pool *pgxpool.Pool, l layout) error {
		names, tokens := make([]string, len(l.resources)), make([]int64, len(l.resources))
		for i, r := range l.resources {
			names[i], tokens[i] = string(r.name), r.token
		}
		_, err := pool.Exec(ctx, `insert into fencegate_bench.fences (resource, token)
			select * from unnest($1::text[], $2::bigint[]) on conflict do nothing`, names, tokens)
		return err
	}
	return w.overPool(prepare, func(ctx context.Context, pool *pgxpool.Pool, r *resource, value []byte) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var last int64
			err := tx.QueryRow(ctx, "select token from fencegate_bench.fences where resource = $1 for update",
				string(r.name)).Scan(&last)
			if err == nil && r.token < last {
				err = fmt.Errorf("%w: the token %d is stale: %d was seen", errFenced, r.token, last)
			}
			if err == nil {
				_, err = tx.Exec(ctx, "update fencegate_bench.fences set token = $2 where resource = $1", string(r.name), r.token)
			}
			if err == nil {
				_, err = tx.Exec(ctx, upsert, string(r.name), benchKey, value)
			}
			return err
		})
	})
}

// inProcess writes through the store and its group commit in this process.
func (w *writes) inProcess(databaseURL string) writeTarget {
	return writeTarget{open: func(ctx context.Context, s setting) (writeSession, error) {
		st, err := postgres.Open(ctx, postgres.Config{DatabaseURL: databaseURL, ConnectionsMax: w.Connections})
		if err != nil {
			return writeSession{}, err
		}
		group, err := engine.New(st, engine.Config{})
		if err != nil {
			st.Close()
			return writeSession{}, err
		}
		return writeSession{close: closing(st.Close), write: committing(group, s)}, nil
	}}
}

// committing hands writes over, and waits for the verdict on each. Where clients share resources, the next write is
// numbered and handed over before the answer to the last.
func committing(group *engine.Engine, s setting) func(context.Context, int, *writer) error {
	verdicts := make([]chan error, s.clients)
	for client := range verdicts {
		verdicts[client] = make(chan error, 1)
	}
	return func(ctx context.Context, client int, w *writer) error {
		r, value := w.next()
		if !s.shared() {
			r.sequence++
			result, err := group.Commit(ctx, numbered(r, value))
			return errors.Join(err, result.Err)
		}
		r.mu.Lock()
		r.sequence++
		group.Submit(ctx, numbered(r, value), func(result store.Result, err error) {
			verdicts[client] <- errors.Join(err, result.Err)
		})
		r.mu.Unlock()
		return <-verdicts[client]
	}
}

// numbered is a write with the number that the resource is at.
func numbered(r *resource, value []byte) store.Write {
	sequence := r.sequence
	return store.Write{
		WriteToken: store.WriteToken{Resource: r.name, Token: r.token, Sequence: &sequence},
		Operation:  store.Operation{Kind: store.Put, Key: benchKey, Value: value, ContentType: contentType},
	}
}

// unfenced is the store on a database in which the function that decides writes has been replaced by one that looks at
// no fence: the same batches over the same protocol, and one set-based upsert.
func (w *writes) unfenced(ctx context.Context) (writeTarget, error) {
	databaseURL, err := w.OtherDatabase(ctx, "fencegate_bench_unfenced")
	if err != nil {
		return writeTarget{}, err
	}
	if _, err := w.OpenStore(ctx, databaseURL); err != nil {
		return writeTarget{}, err
	}
	db, err := rig.OpenPool(ctx, databaseURL, 1)
	if err != nil {
		return writeTarget{}, err
	}
	defer db.Close()
	var arguments, result string // whatever the function has
	err = db.QueryRow(ctx, `
		select pg_get_function_arguments(p.oid), pg_get_function_result(p.oid) from pg_proc p
		where p.pronamespace = 'fence'::regnamespace and p.proname = 'write'`).Scan(&arguments, &result)
	if err == nil {
		_, err = db.Exec(ctx, strings.NewReplacer("$arguments", arguments, "$result", result).Replace(unfencedWrite))
	}
	if err != nil {
		return writeTarget{}, fmt.Errorf("replace the function that decides writes: %w", err)
	}
	return w.inProcess(databaseURL), nil
}

// unfencedWrite changes the records as the fast path of fence.write does, the last put of each key, and looks at no fence.
const unfencedWrite = `
create or replace function fence.write($arguments) returns $result language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_rows   integer;
    v_stored integer[];
begin
    admitted := array(select generate_subscripts(p_resources, 1));
    versions := array_fill(1::bigint, array[cardinality(p_resources)]);
    v_stored := admitted;
    if cardinality(p_chain_ends) < cardinality(p_resources) then
        v_stored := array(
            select max(u.index)::integer
            from unnest(p_resources, p_keys) with ordinality as u (resource, key, index)
            group by u.resource collate "C", u.key collate "C");
    end if;
    update fence.records r
    set version = r.version + 1, fencing_token = p_tokens[s], sequence = p_sequences[s], updated_at = clock_timestamp(),
        content_type = p_content_types[s], value = p_values[s], created = false
    from unnest(v_stored) s
    where r.resource = p_resources[s] and r.key = p_keys[s];
    get diagnostics v_rows = row_count;
    if v_rows < cardinality(v_stored) then
        insert into fence.records (
            resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
        select p_resources[s], p_keys[s], 1, p_tokens[s], p_sequences[s], clock_timestamp(), p_content_types[s], p_values[s],
            true
        from unnest(v_stored) s
        on conflict do nothing;
    end if;
end
$$`
