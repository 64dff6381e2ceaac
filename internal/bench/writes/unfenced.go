package writes

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// unfencedDatabase is beside the one that is measured.
const unfencedDatabase = "fencegate_bench_unfenced"

// openUnfenced is the store on a database in which the function that decides writes has been replaced by one that looks at no fence: the same
// batches over the same protocol, and one set-based upsert.
func openUnfenced(ctx context.Context, config store.Config) (target, error) {
	databaseURL := config.DatabaseURL
	unfenced, err := makeUnfenced(ctx, databaseURL)
	if err != nil {
		return target{}, err
	}
	config.DatabaseURL = unfenced
	t := storeTarget(config)
	t.name = nameStoreUnfenced
	t.stop = func() error { return dropUnfenced(context.WithoutCancel(ctx), databaseURL) }
	return t, nil
}

// makeUnfenced makes that database and returns its URL.
func makeUnfenced(ctx context.Context, databaseURL string) (_ string, err error) {
	unfenced, err := withDatabase(databaseURL, unfencedDatabase)
	if err != nil {
		return "", err
	}
	admin, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, admin.Close(ctx)) }()
	for _, sql := range []string{"drop database if exists " + unfencedDatabase + " with (force)", "create database " + unfencedDatabase} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("make the database without fences: %w", err)
		}
	}
	st, err := store.Open(ctx, store.Config{DatabaseURL: unfenced})
	if err != nil {
		return "", err
	}
	err = st.Migrate(ctx)
	st.Close()
	if err != nil {
		return "", err
	}
	return unfenced, unfence(ctx, unfenced)
}

func dropUnfenced(ctx context.Context, databaseURL string) error {
	admin, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	_, err = admin.Exec(ctx, "drop database if exists "+unfencedDatabase+" with (force)")
	return errors.Join(err, admin.Close(ctx))
}

// unfence replaces the function. It keeps whatever arguments and result the function has.
func unfence(ctx context.Context, databaseURL string) (err error) {
	db, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(ctx)) }()
	var arguments, result string
	err = db.QueryRow(ctx, `
		select pg_get_function_arguments(p.oid), pg_get_function_result(p.oid) from pg_proc p
		where p.pronamespace = 'fence'::regnamespace and p.proname = 'write'`).Scan(&arguments, &result)
	if err != nil {
		return fmt.Errorf("find the function that decides writes: %w", err)
	}
	_, err = db.Exec(ctx, strings.NewReplacer("$arguments", arguments, "$result", result).Replace(unfencedWrite))
	if err != nil {
		return fmt.Errorf("replace the function that decides writes: %w", err)
	}
	return nil
}

// unfencedWrite changes the records as fence.write does, and looks at no fence. A record that is twice in a batch, which only the hot layout
// does, is written once, as the last of them says.
const unfencedWrite = `
create or replace function fence.write($arguments) returns $result language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_count  constant integer := cardinality(p_resources);
    v_latest integer[] := array(select generate_series(1, v_count));
begin
    if v_count > 1 and v_count > (select count(distinct r collate "C") from unnest(p_resources) r) then
        v_latest := array(
            select max(u.place) from unnest(p_resources, p_keys) with ordinality as u (resource, key, place) group by u.resource, u.key);
    end if;
    with given as (
        select p_resources[place] as resource, p_keys[place] as key, p_tokens[place] as token, p_sequences[place] as sequence,
            p_content_types[place] as content_type, p_values[place] as value
        from unnest(v_latest) place
    ), replaced as (
        update fence.records r
        set version = r.version + 1, fencing_token = p.token, sequence = p.sequence, updated_at = clock_timestamp(),
            content_type = p.content_type, value = p.value
        from given p
        where r.resource = p.resource and r.key = p.key
        returning r.resource, r.key
    )
    insert into fence.records as r (resource, key, version, fencing_token, sequence, updated_at, content_type, value)
    select p.resource, p.key, 1, p.token, p.sequence, clock_timestamp(), p.content_type, p.value
    from given p
    where not exists (select from replaced d where d.resource = p.resource and d.key = p.key)
    on conflict (resource, key) do update
    set version = r.version + 1, fencing_token = excluded.fencing_token, sequence = excluded.sequence,
        updated_at = excluded.updated_at, content_type = excluded.content_type, value = excluded.value;
    admitted := array(select generate_series(1, v_count));
    versions := array_fill(1::bigint, array[v_count]);
end
$$`

// withDatabase is the URL of another database of the same server.
func withDatabase(databaseURL, name string) (string, error) {
	parsed, err := url.Parse(databaseURL)
	if err != nil || parsed.Scheme == "" {
		return "", fmt.Errorf("the target %s needs a database URL that begins with postgres://", nameStoreUnfenced)
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
