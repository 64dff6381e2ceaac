package postgres_test

import (
	"testing"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestSweepMovesRejectionsBySQL checks that rejections which a committed transaction reported become rejections of the
// source "sql": one for each group, with the table and the holder of the token.
// Of a resource that is too long for a name, the begin is kept.
func TestSweepMovesRejectionsBySQL(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	lock, _ := store.ParseName("reported/1")
	lease := b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
	b.Exec(t, `create table reported (id text)`)
	b.Exec(t, `select fence.protect('reported', 'reported/{id}', 'observe')`)
	b.Exec(t, `insert into reported values (1), (2)`)
	b.Exec(t, `insert into reported values (1)`)
	b.Exec(t, `insert into reported select string_agg(chr(65536 + i), '') from generate_series(1, 3000) i`)
	if _, err := b.SQL.Exec(t.Context(), "select fence.try_guard('reported/1', $1, 1, gen_random_uuid())",
		lease.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := newSweeper(t, b.Store, postgres.SweeperConfig{}).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var moved string
	err := b.SQL.QueryRow(t.Context(), `
		select string_agg(concat_ws(' ', case when length(resource) = 512 then 'long' else resource end,
				key, code, source, address, fencing_token > 0, owner_id, count), ', '
				order by resource, code) || ', left: ' || (select count(*) from fence.reported)
		from fence.rejections`).Scan(&moved)
	const want = "reported/1  lease_mismatch sql local t holder 1, reported/1 public.reported token_required sql local f 2, " +
		"reported/2 public.reported token_required sql local f 1, " +
		"long public.reported token_required sql local f 1, left: 0"
	if err != nil || moved != want {
		t.Errorf("the rejections are %q (%v), want %q", moved, err, want)
	}
}
