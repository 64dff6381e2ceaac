package postgres_test

import (
	"testing"

	"github.com/fencegate/fencegate/store/postgres"
)

// TestAuditText checks the text of an entry and the hashes of a seal, which must stay the same: exports have them.
func TestAuditText(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (id, at, principal, address, action, name, details) overriding system value
		values (7, '2026-01-02 03:04:05.000006+02', 'p', '::1', 'policy_set', E'é <b>\u2028', '{"b": 1.50, "aa": [null, "\n"]}'),
			(8, '2026-01-02 03:04:05.000006+02', 'anonymous', '::1', 'policy_set', '', '{}')`)
	b.Exec(t, `set timezone = 'Asia/Tokyo'; set datestyle = 'SQL, DMY'; select fence.sweep('audit', '0', null, null, null)`)
	expectSQL(t, b, `{"at": "2026-01-02T01:04:05.000006Z", "id": 7, "name": "é <b>`+"\u2028"+`", "action": "policy_set", `+
		`"address": "::1", "details": {"b": 1.50, "aa": [null, "\n"]}, "principal": "p"}`,
		"select fence.audit_text(a) from fence.audit a where id = 7")
	expectSQL(t, b, "7 1767315845000006 a454bc28325a73ad\n8 - edd26c74b087c850",
		`select regexp_replace(entries, '(\w{16})\w{48}', '\1', 'g') from fence.audit_seals`)
}

// TestSealWaitsForNone checks that a transaction that is left open keeps no other entry from being sealed, and that its
// own is in the next seal.
func TestSealWaitsForNone(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const note = "select fence.note_action('fence_set', 'n', '{}', 'p', '')"
	open := b.begin(t)
	if _, err := open.Exec(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	b.Exec(t, note)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	sealed := func(want string) {
		t.Helper()
		if _, err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectSQL(t, b, want, "select string_agg(concat_ws(' ', id, seal), ', ' order by id) from fence.audit")
	}
	sealed("2 1")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealed("1 2, 2 1")
	sealed("1 2, 2 1")
}

// TestSweepSealsBeforeItDeletes checks that the sweep deletes no entry that is in no seal.
func TestSweepSealsBeforeItDeletes(t *testing.T) {
	t.Parallel()
	for principal, sweep := range map[string]string{
		"p": "fence.sweep('audit', '0', null, '0', null)", "anonymous": "fence.sweep('audit', '0', null, null, 1)",
	} {
		b := newTestbed(t)
		b.Exec(t, "update fence.sweeps set age = '0', count_max = 1 where part = 'audit'")
		b.Exec(t, "select fence.note_action('fence_set', '', '{}', $1, '') from generate_series(1, 150)", principal)
		expectSQL(t, b, "100 deleted", "select done || ' deleted' from "+sweep)
		expectSQL(t, b, "50 in no seal", "select count(*) || ' in no seal' from fence.audit where seal is null")
	}
}

// TestSealsAreDurable checks that a sweep which has made a seal waits for the disk, and another one does not.
func TestSealsAreDurable(t *testing.T) {
	t.Parallel()
	for sweep, want := range map[string]string{
		"fence.sweep_all()": "on", "fence.sweep('audit', '0', null, null, null)": "on", "fence.sweep('leases', '0', null, null, null)": "off",
	} {
		b := newTestbed(t)
		b.Exec(t, "select fence.note_action('fence_set', 'n', '{}', 'p', '')")
		for _, want := range []string{want, "off"} {
			tx := b.begin(t)
			var setting string
			if err := tx.QueryRow(t.Context(), "select current_setting('synchronous_commit') from "+
				"(select count(*) from "+sweep+") swept where count > 0").Scan(&setting); err != nil || setting != want {
				t.Errorf("after %s synchronous_commit is %s (%v), want %s", sweep, setting, err, want)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
