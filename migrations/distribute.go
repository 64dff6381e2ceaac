package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNoCluster means that a database cannot become the coordinator of a cluster as it is.
var ErrNoCluster = errors.New("the names can't be distributed")

//go:embed citus/placements.sql
var placementsSQL string

//go:embed citus/clients.sql
var clientsSQL string

// firstHash and lastHash are the range of all names.
const firstHash, lastHash = -1 << 31, 1<<31 - 1

// Distribution says how the names of a database are distributed among the nodes of Citus.
type Distribution struct {
	// With is a distributed table: names are at the node of its rows whose column has the first segment of the name.
	With string
	// Connect connects to the node at an address, in the database of the coordinator.
	Connect func(ctx context.Context, address string) (*pgx.Conn, error)
	// Roles get their rights on all nodes, where they must exist; see Grant.
	Roles Roles
}

// Apply makes the schema on all nodes, and tells the coordinator, to which conn is connected, where the names are to
// be. The names that it has stay there until they are moved (store/cluster). It can be repeated, for nodes that came
// later. It returns ErrNoCluster with the reason for a database that can't be distributed, and otherwise what
// Script.Apply returns.
func (d Distribution) Apply(ctx context.Context, conn *pgx.Conn) (err error) {
	placeType, err := d.check(ctx, conn)
	if err != nil {
		return err
	}
	addresses, err := nodeAddresses(ctx, conn)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if err := d.makeNode(ctx, conn, address, placeType); err != nil {
			return fmt.Errorf("node %s: %w", address, err)
		}
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"create schema if not exists fencegate",
			"grant usage on schema fencegate to public", // what is in it has the rights of its caller
			fmt.Sprintf(`create table if not exists fencegate.places (place %s primary key)`, placeType),
			fmt.Sprintf(`select create_distributed_table('fencegate.places', 'place', colocate_with := %s)
				where not exists (select from pg_dist_partition where logicalrelid = 'fencegate.places'::regclass)`, quoteLiteral(d.With)),
			placementsSQL,
			strings.ReplaceAll(clientsSQL, "{{type}}", placeType),
			`select create_distributed_function(p.oid::regprocedure, 'place', colocate_with := 'fencegate.places',
				force_delegation := true)
			from pg_proc p where p.pronamespace = 'fencegate'::regnamespace and p.proname like '%\_at'`,
			fmt.Sprintf(`with made as (
				insert into fence.cluster (place_type) values (%s) on conflict do nothing returning 1
			)
			insert into fence.ranges (first, last) select %d, %d from made`, quoteLiteral(placeType), firstHash, lastHash),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		rows, _ := tx.Query(ctx, `select w.problem from fence.protected_tables p, fencegate.template_problem(p.table_id, p.template) w (problem)
			where p.table_id in (select oid from pg_class) and w.problem is not null order by 1`)
		problems, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("%w: %s", ErrNoCluster, strings.Join(problems, "; "))
		}
		return err
	})
}

// check returns the type of the places, or ErrNoCluster.
func (d Distribution) check(ctx context.Context, conn *pgx.Conn) (placeType string, err error) {
	var citus, table, coordinator bool
	var column *string
	err = conn.QueryRow(ctx, "select exists (select from pg_extension where extname = 'citus'), to_regclass($1) is not null",
		d.With).Scan(&citus, &table)
	switch {
	case err != nil:
		return "", err
	case !citus:
		return "", fmt.Errorf("%w: the database has no extension citus", ErrNoCluster)
	case !table:
		return "", fmt.Errorf("%w: there is no table %s", ErrNoCluster, d.With)
	}
	err = conn.QueryRow(ctx, `select citus_is_coordinator(), (
			select format_type(a.atttypid, null) from pg_dist_partition p
			join pg_attribute a on a.attrelid = p.logicalrelid
				and a.attname = column_to_column_name(p.logicalrelid, p.partkey)
			where p.logicalrelid = $1::regclass and p.partmethod = 'h')`, d.With).Scan(&coordinator, &column)
	switch {
	case err != nil:
		return "", err
	case !coordinator:
		return "", fmt.Errorf("%w: this is not the coordinator", ErrNoCluster)
	case column == nil:
		return "", fmt.Errorf("%w: %s is not distributed by the hash of a column", ErrNoCluster, d.With)
	}
	switch *column {
	case "text", "bigint", "uuid":
		return *column, nil
	}
	return "", fmt.Errorf("%w: %s is distributed by a column of the type %s, it must be text, bigint or uuid",
		ErrNoCluster, d.With, *column)
}

// nodeAddresses are those of the nodes that have, or may have, parts of distributed tables.
func nodeAddresses(ctx context.Context, conn *pgx.Conn) (addresses []string, err error) {
	type node struct {
		Address string
		Synced  bool
	}
	rows, _ := conn.Query(ctx, `select format('%s:%s', nodename, nodeport), metadatasynced from pg_dist_node
		where noderole = 'primary' and isactive and shouldhaveshards order by 1`)
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[node])
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if !n.Synced {
			return nil, fmt.Errorf("%w: node %s does not have the metadata of Citus (start_metadata_sync_to_node)",
				ErrNoCluster, n.Address)
		}
		addresses = append(addresses, n.Address)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%w: no node may have shards", ErrNoCluster)
	}
	return addresses, nil
}

// makeNode makes the schema at a node, with the policies and the names of roles that the coordinator has.
func (d Distribution) makeNode(ctx context.Context, coordinator *pgx.Conn, address, placeType string) (err error) {
	conn, err := d.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := Apply(ctx, conn); err != nil {
		return err
	}
	if err := Grant(ctx, conn, d.Roles); err != nil {
		return err
	}
	for _, table := range []string{"fence.policies", "fence.allowed_names"} {
		rows, _ := coordinator.Query(ctx, fmt.Sprintf("select t::text from %s t", table))
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, fmt.Sprintf("insert into %[1]s select (r.row).* from (select t::%[1]s as row from unnest($1::text[]) t "+
			"offset 0) r on conflict do nothing", table), texts)
		if err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "insert into fence.cluster (place_type) values ($1) on conflict do nothing", placeType)
	return err
}
