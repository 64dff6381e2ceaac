package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// rolledBackCases are about rejections by SQL that raise.
var rolledBackCases = []storeCase{{"rejections that are rolled back are counted as often as they came, with their times", func(
	ctx context.Context, s *fixture,
) error {
	err := s.do(ctx, acquire, replace)
	var times []time.Time // by the database's clock: before the first rejection, after it, before the last, after it
	for _, round := range []int{2, 3} {
		for i := range round {
			var before, after time.Time
			err = errors.Join(err, s.SQL.QueryRow(ctx, "select clock_timestamp()").Scan(&before))
			if _, rejected := s.SQL.Exec(ctx, "select fence.guard($1, $2, 1)", s.lock, s.leases[0].Token); rejected == nil {
				err = errors.Join(err, errors.New("the former holder was admitted"))
			}
			err = errors.Join(err, s.SQL.QueryRow(ctx, "select clock_timestamp()").Scan(&after))
			if (round == 2) == (i == 0) {
				times = append(times[:min(len(times), 2)], before, after)
			}
		}
		_, swept := s.SQL.Exec(ctx, "select fence.sweep('reported', '0', 1000, '0', 0)")
		err = errors.Join(err, swept)
	}
	var listed string
	err = errors.Join(err, s.SQL.QueryRow(ctx, `
		select coalesce(string_agg(concat_ws(' ', resource, reason, fencing_token, owner_id, count,
			case when first_at between $2 and $3 and last_at between $4 and $5 then 'in time'
				else format('from %s to %s', first_at, last_at) end), ', '), 'none')
		from fence.rejections where source = 'sql' and fencing_token = $1`,
		s.leases[0].Token, times[0], times[1], times[2], times[3]).Scan(&listed))
	want := fmt.Sprintf("%s superseded %d %s 5 in time", s.lock, s.leases[0].Token, s.leases[0].OwnerID)
	if err == nil && listed != want {
		err = fmt.Errorf("listed is %s, want %s", listed, want)
	}
	return err
}}}

// spoiledCases are apart, since a sweep reads the slots of all.
var spoiledCases = []storeCase{{"a slot that two transactions have spoiled lists nothing", func(
	ctx context.Context, s *fixture,
) error {
	err := s.do(ctx, acquire, replace)
	if _, rejected := s.SQL.Exec(ctx, "select fence.guard($1, $2, 1)", s.lock, s.leases[0].Token); rejected == nil {
		err = errors.Join(err, errors.New("the former holder was admitted"))
	}
	const spoil = `select setval(s.cause, pg_sequence_last_value(s.cause) + (1 << 10)) from fence.rejected_slots s
		where pg_sequence_last_value(s.cause) >> 10 = $1::bigint` // to the next token
	_, spoiled := s.SQL.Exec(ctx, spoil, s.leases[0].Token)
	_, swept := s.SQL.Exec(ctx, "select fence.sweep('reported', '0', 1000, '0', 0)")
	var listed int
	const list = "select count(*) from fence.rejections where source = 'sql' and fencing_token - $1 in (0, 1)"
	err = errors.Join(err, spoiled, swept, s.SQL.QueryRow(ctx, list, s.leases[0].Token).Scan(&listed))
	if err == nil && listed != 0 {
		err = fmt.Errorf("%d groups are listed, want none", listed)
	}
	return err
}}}

// rolledBackMutations break what lists them.
var rolledBackMutations = []mutation{
	{"rolled back rejections are not read", "sweep_reported", removing("perform fence.read_slots(v_ahead);"),
		[]string{rolledBackCases[0].name}},
	{"a slot that was read is counted from the start", "read_slots",
		replacing("(s.read | 1048575)", "s.read"), []string{rolledBackCases[0].name}},
	{"a rejection has the time of the sweep", "read_slots",
		replacing("select v_slot.first, v_slot.last,", "select clock_timestamp(), clock_timestamp(),"),
		[]string{rolledBackCases[0].name}},
	{"a group begins with its last rejection", "read_slots",
		replacing("select v_slot.first,", "select v_slot.last,"), []string{rolledBackCases[0].name}},
	{"only the first rejection of a group has its time", "note_rejection",
		removing("perform setval(v_slot.last, v_at);"), []string{rolledBackCases[0].name}},
	{"a slot is read again and again", "read_slots", replacing("set read = v_slot.key", "set read = v_slot.read"),
		[]string{rolledBackCases[0].name}},
	{"a name is taken without its hash", "read_slots",
		replacing("fence.slot_key(named.name, v_slot.cause, p.id, r.oid) = v_slot.key >> 20 << 20", "named.name <> ''"),
		[]string{spoiledCases[0].name}},
}

// TestFloodOfRejections checks that rejections by SQL which come at once are all counted and listed, by one group for
// each former holder, while the sweep reads them; and that one of many groups is listed or counted as unlisted.
func TestFloodOfRejections(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	const clients, each, zombies, crowd = 4, 100, 10, 100
	var former []store.Lease
	for i := range crowd {
		former = append(former, b.granted(t, store.AcquireRequest{Lock: numbered("lock", i), OwnerID: "w"}))
		if err := b.Release(t.Context(), former[i].Ref()); err != nil {
			t.Fatal(err)
		}
	}
	reject := func(lease store.Lease) {
		if _, err := b.SQL.Exec(t.Context(), "select fence.guard($1, $2, 1)", lease.Lock, lease.Token); err == nil {
			t.Errorf("%s was admitted", lease.Lock)
		}
	}
	sweep := func() {
		if _, err := sweeper.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for i := range each {
				reject(former[i%zombies])
			}
		})
	}
	running.Go(func() {
		for range 5 {
			sweep()
		}
	})
	running.Wait()
	sweep()
	const listed = "select format('%s groups, %s writes', count(*), sum(count)) from fence.rejections where source = 'sql'"
	expectSQL(t, b, fmt.Sprintf("%d groups, %d writes", zombies, clients*each), listed)

	for _, lease := range former[zombies:] {
		reject(lease)
	}
	sweep()
	const slots = 32
	expectSQL(t, b, fmt.Sprintf("%d groups, %d writes", zombies+slots, clients*each+slots), listed)
	overview, err := b.Overview(t.Context())
	if err != nil || overview.Database.BySQL.Unlisted != crowd-zombies-slots {
		t.Errorf("%d are unlisted (%v), want %d", overview.Database.BySQL.Unlisted, err, crowd-zombies-slots)
	}
}

// TestRolledBackRejectionsAreListed checks that rejections by SQL are listed although their transactions are rolled
// back: with the table, the token, its owner, the role and how often, each time that the sweep comes.
func TestRolledBackRejectionsAreListed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `create table stopped (id text)`)
	b.Exec(t, `select fence.protect('stopped', 'stopped/{id}')`)
	zombie := b.granted(t, store.AcquireRequest{Lock: "stopped/1", OwnerID: "zombie"})
	if err := b.Release(t.Context(), zombie.Ref()); err != nil {
		t.Fatal(err)
	}
	holder := b.granted(t, store.AcquireRequest{Lock: "stopped/1", OwnerID: "holder"})
	reject := func(sql string, args ...any) {
		t.Helper()
		_, err := b.SQL.Exec(t.Context(), sql, args...)
		if raised, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.HasPrefix(raised.Code, "LF10") {
			t.Errorf("%s returned %v, want a rejection", sql, err)
		}
	}
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	expect := func(want string) {
		t.Helper()
		if _, err := sweeper.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		expectSQL(t, b, want, `
			select string_agg(concat_ws(' ', resource, nullif(key, ''), code, nullif(reason, ''), fencing_token, owner_id,
				granted_token, count, nullif(principal = 'sql:' || session_user, true)), ', ' order by resource, key, code)
			from fence.rejections where source = 'sql'`)
	}
	stale := fmt.Sprintf("stopped/1 token_stale superseded %d zombie %d ", zombie.Token, holder.Token)

	reject("select fence.guard('stopped/1', $1, 1)", zombie.Token)
	expect(stale + "1")
	for range 5 {
		reject("select fence.guard('stopped/1', $1, 1)", zombie.Token)
	}
	expect(stale + "6")
	expect(stale + "6")
	reject("insert into stopped values (1)")
	reject("insert into stopped values (2)")
	reject("insert into stopped values (3)")
	reject("select fence.guard('unknown', 1)")
	expect(stale + fmt.Sprintf("6, stopped/1 public.stopped token_required 0 %d 1, ", holder.Token) +
		"stopped/{id} public.stopped token_required 0 0 2")
	expectSQL(t, b, int64(1), `select (select sum(rejections) from fence.rejected_by_sql)::bigint - counted
		from fence.sweeps where part = 'reported'`)

	b.Exec(t, "drop sequence fence.rejected_slot") // then it can't be listed, and is rejected all the same
	reject("insert into stopped select 'x' || $1", "1")
	reject("select fence.guard('stopped/1', $1, 2)", holder.Token+1)
}

// TestTotalsBySQL checks that guarded writes by SQL are counted where PostgreSQL counts calls, whichever way a
// transaction was admitted; that rejections are counted by their kind; and those that a table lets pass apart.
func TestTotalsBySQL(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	alterDatabase(t, b, "track_functions = none")
	overview, err := openStore(t, postgres.Config{DatabaseURL: b.URL}).Overview(t.Context())
	if err != nil || overview.Database.BySQL.Guards != nil {
		t.Errorf("without track_functions there are %v guards (%v), want an unknown number", overview.Database.BySQL.Guards, err)
	}
	alterDatabase(t, b, "track_functions = pl")
	counting := openStore(t, postgres.Config{DatabaseURL: b.URL})
	client, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	for name, mode := range map[string]string{"counted": "enforce", "observed": "observe"} {
		b.Exec(t, fmt.Sprintf("create table %[1]s (id text); select fence.protect('%[1]s', '%[1]s/{id}', '%[2]s')", name, mode))
	}
	former := b.granted(t, store.AcquireRequest{Lock: "counted/1", OwnerID: "former"})
	if err := b.Release(t.Context(), former.Ref()); err != nil {
		t.Fatal(err)
	}
	holder := b.granted(t, store.AcquireRequest{Lock: "counted/1", OwnerID: "holder"})
	stale := b.granted(t, store.AcquireRequest{Lock: "observed/1", OwnerID: "stale"})
	if err := b.Release(t.Context(), stale.Ref()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		fmt.Sprintf("select fence.guard('counted/1', %d, 1)", holder.Token),
		fmt.Sprintf("select fence.guard('counted/1', %d, 2, digest => 'x')", holder.Token), // by the whole rule
		fmt.Sprintf("select fence.try_guard('counted/1', %d, 3)", holder.Token),
		fmt.Sprintf("select fence.set_token(%d, 4); insert into counted values (1)", holder.Token),
		fmt.Sprintf("select fence.try_guard('counted/1', %d, 1)", former.Token),                    // a zombie
		fmt.Sprintf("select fence.guard('counted/1', %d, 1)", former.Token),                        // another
		fmt.Sprintf("select fence.guard('counted/1', %d, 1)", holder.Token),                        // a reused number
		"insert into counted values (2)",                                                           // without a token
		fmt.Sprintf("select fence.set_token(%d, 1); insert into observed values (1)", stale.Token), // passes
		"select pg_stat_force_next_flush()",
	} {
		_, err := client.Exec(t.Context(), sql)
		if rejection, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || !strings.HasPrefix(rejection.Code, "LF10")) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if _, err := newSweeper(t, b.Store, postgres.SweeperConfig{}).Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if overview, err = counting.Overview(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := overview.Database.BySQL
	if got.Guards == nil || *got.Guards != 4 {
		t.Errorf("the number of guards is %v, want 4", got.Guards)
	}
	maps.DeleteFunc(got.Rejected, func(_ store.RejectionClass, writes int64) bool { return writes == 0 })
	if want := map[store.RejectionClass]int64{
		{Verdict: store.VerdictTokenStale, Kind: store.KindZombie}:                 2,
		{Verdict: store.VerdictTokenStale, Kind: store.KindNumbering}:              1,
		{Verdict: store.VerdictTokenRequired, Kind: store.KindMisuse}:              1,
		{Verdict: store.VerdictTokenStale, Kind: store.KindZombie, Observed: true}: 1,
	}; !maps.Equal(got.Rejected, want) {
		t.Errorf("the rejections are %v, want %v", got.Rejected, want)
	}
	if got.SweptAt.Before(holder.GrantedAt) || got.SweptAt.After(overview.At) {
		t.Errorf("they were counted at %s, want between %s and %s", got.SweptAt, holder.GrantedAt, overview.At)
	}
	rejections, err := b.Rejections(t.Context(), store.RejectionQuery{Limit: 10})
	for i := range rejections {
		if got, want := rejections[i].Observed(), rejections[i].Resource == "observed/1"; got != want {
			t.Errorf("whether %+v passed is shown as %v, want %v", rejections[i], got, want)
		}
	}
	if err != nil || len(rejections) != 5 {
		t.Errorf("%d groups are listed (%v), want 5", len(rejections), err)
	}
}

// TestRejectionsAfterCrash checks that rejections which never came are neither counted nor listed after a crash of the
// server, or of one of its processes: sequences are then up to 32 ahead of what nextval has returned. As many may be missing instead.
func TestRejectionsAfterCrash(t *testing.T) {
	t.Parallel()
	b, cluster := newCrashbed(t)
	zombie := b.granted(t, store.AcquireRequest{Lock: "x/1", OwnerID: "zombie"})
	if err := b.Release(t.Context(), zombie.Ref()); err != nil {
		t.Fatal(err)
	}
	reject := func() {
		t.Helper()
		if _, err := b.SQL.Exec(t.Context(), "select fence.guard('x/1', $1, 1)", zombie.Token); err == nil {
			t.Error("the former holder was admitted")
		}
		b.Exec(t, "select fence.probe()") // so that the sequences are on the disk
	}
	expect := func(when string, want string) {
		t.Helper()
		b.Exec(t, "select fence.sweep('reported', '0', null, null, null)")
		b.Exec(t, "select fence.probe()")
		if got := valueOf[string](t, b, `select format('%s listed, %s counted', (select sum(count) from fence.rejections),
			(select sum(rejections) from fence.rejected_by_sql))`); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	connect := func() {
		b.SQL.Reset()
		await(t, "the server is back", func() bool { return b.SQL.Ping(t.Context()) == nil })
	}
	restart := func() {
		cluster.Kill()
		cluster.Restart()
		connect()
	}
	reject()
	reject()
	restart()
	expect("after the crash", "2 listed, 1 counted")
	reject()
	expect("after another one", "3 listed, 2 counted")
	restart()
	expect("after the second crash", "3 listed, 2 counted")
	reject()
	reject()
	expect("after two more", "5 listed, 4 counted")
	pid := valueOf[int](t, b, "select pid from pg_stat_activity where backend_type = 'walwriter'")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the server has noticed", func() bool {
		b.SQL.Reset()
		var other int
		err := b.SQL.QueryRow(t.Context(), "select pid from pg_stat_activity where backend_type = 'walwriter'").Scan(&other)
		return err == nil && other != pid
	})
	expect("after the crash of a process", "5 listed, 4 counted")
	cluster.Restart()
	connect()
	reject()
	expect("after a restart", "6 listed, 5 counted")
}
