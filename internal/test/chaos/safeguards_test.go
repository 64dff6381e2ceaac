//go:build unix

package chaos

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/migrations"
)

// safeguard is a place in the product that a promise depends on, and what is there instead without it.
type safeguard struct {
	name string
	// file is a Go file of the module, or a function of the database without its path (rule.sql).
	file, old, broken string
	// more are further changes of the file, where a second check does the same.
	more map[string]string
	// loses and faults are of the epochs in which its lack is found.
	loses  bool
	faults []string
}

var safeguards = []safeguard{
	{name: "tokens-compared", file: "rule.sql", old: "when not external and (token < granted_token or not open)",
		broken: "when false", faults: []string{"client-late", "gateway-frozen"}},
	{name: "numbers-rise", file: "rule.sql", old: "and (token, coalesce(sequence, 0)) <= (last_token, last_sequence)",
		broken: "and false", faults: []string{"client-late", "client-late"}},
	{name: "replay-recognised", file: "admit.sql", old: "(c.token, c.sequence) = (f.last_token, f.last_sequence) and",
		broken: "false and", faults: []string{"client-late"}},
	{name: "replay-before-fence", file: "admit.sql", old: "and c.digest = stored.last_digest",
		broken: "and c.digest = stored.last_digest and c.token = f.granted_token and f.open",
		faults: []string{"client-late", "gateway-frozen", "client-silent"}},
	{name: "expiry-awaited", file: "longest_running.sql", old: "if v_lease.expires_at > greatest(",
		broken: "if v_lease.expires_at - interval '150 ms' > greatest(", faults: []string{"client-slow"}},
	{name: "expired-not-renewed", file: "renew_leases.sql",
		old:    "o.session_id is null and o.expires_at > v_now",
		broken: "o.session_id is null", faults: []string{"client-slow", "client-late"}},
	// Without it, the fence is read as it was before the write waited for it.
	{name: "fence-read-locked", file: "write_one.sql", old: "and fence.fast_path_admits(f, p_token, p_sequence)",
		broken: `and exists (select from fence.fences s
			where s.resource = p_resource and fence.fast_path_admits(s, p_token, p_sequence))`,
		faults: []string{"standby-frozen", "standby-frozen", "standby-frozen"}},
	{name: "request-recognised", file: "acquire_lease.sql", old: "if v_found.again then",
		broken: "if false then", faults: []string{"client-late", "client-silent"}},
	{name: "commit-durable", file: "commit_durably.sql",
		old:    "case current_setting('synchronous_commit') when 'off' then 'on'",
		broken: "case current_setting('synchronous_commit') when '' then 'on'",
		faults: []string{"standby-promoted-after-reload"}},
	{name: "replay-waits", file: "write_ruled.sql", old: "perform fence.confirm_read();", broken: "null;",
		faults: []string{"standby-promoted-after-cancel"}},
	{name: "canceled-wait-unknown", file: "store/postgres/sqlstate.go", old: "if !found {", broken: "if !found || true {",
		faults: []string{"standby-promoted-after-cancel"}},
	{name: "token-jump", file: "jump.sql", old: "if found then", broken: "if true then", loses: true,
		faults: []string{"commits-lost", "backup-restored"}},
	{name: "lineage-compared", file: "store/postgres/lineage.go",
		old:    "if err := l.refuse(now, newestToken); err != nil {",
		broken: "if err := l.refuse(now, newestToken); err != nil && false {", loses: true,
		more:   map[string]string{"if at+tokensSlack < newestToken {": "if false {"},
		faults: []string{"old-primary-returned"}},
	{name: "newest-token-compared", file: "store/engine/providers.go",
		old: "err = e.refuseGrant(ctx, provider, lease, request.NewestToken)", broken: "err = nil",
		loses: true, faults: []string{forgotten}},
	{name: "unknown-token-rejected", file: "rule.sql", old: "when not external and token > granted_token",
		broken: "when false", faults: []string{"client-slow"}},
	{name: "release-closes-fence", file: "close_fence.sql", old: "set open = false, admitted_in = null",
		broken: "set admitted_in = null", faults: []string{"client-slow"}},
	{name: "reader-closes-fence", file: "grant_lease.sql", old: "open = v_lease.mode = 'exclusive',",
		broken: "open = true,", faults: []string{"client-slow"}},
	{name: "subtree-closes-below", file: "grant_lease.sql",
		old:    "set open = false, adopted_token = null, admitted_in = null\n",
		broken: "set admitted_in = null\n",
		faults: []string{"client-slow", "client-slow", "client-slow"}},
	// Without it, a transaction with an older snapshot does not notice.
	{name: "subtrees-changed", file: "grant_lease.sql",
		old:    "update fence.fences f set open = f.open\n",
		broken: "perform from fence.fences f\n", faults: []string{"client-slow", "client-slow", "client-slow"}},
	{name: "rows-checked", file: "check_rows.sql",
		old:    "if not p_observe then\n            v_error",
		broken: "if false then\n            v_error", faults: []string{"client-slow"}},
	{name: "lease-id-compared", file: "admit.sql", old: "and c.lease_id is distinct from (",
		broken: "and false and c.lease_id is distinct from (", faults: []string{"client-slow"}},
}

// attemptsMax bounds the epochs in which a violation is looked for.
const attemptsMax = 10

// TestSafeguards switches off one safeguard after the other, and checks that TestChaos would find the violation.
func TestSafeguards(t *testing.T) {
	if *without == "" {
		t.Skip("see -chaos.without")
	}
	tested := 0
	for _, s := range safeguards {
		if *without != "all" && *without != s.name {
			continue
		}
		tested++
		t.Run(s.name, func(t *testing.T) { s.test(t) })
	}
	if tested == 0 {
		t.Fatalf("there is no safeguard %q", *without)
	}
}

func (s safeguard) changes() map[string]string {
	changes := maps.Clone(s.more)
	if changes == nil {
		changes = map[string]string{}
	}
	changes[s.old] = s.broken
	return changes
}

func (s safeguard) test(t *testing.T) {
	t.Helper()
	sql := filepath.Ext(s.file) == ".sql"
	path := process.Build(t)
	if !sql {
		path = process.BuildChanged(t, s.file, s.changes())
	}
	// Where a constraint refuses what the safeguard lets through, the gateway logs an error.
	w := newWorld(t, path, gateway.StartBroken, 3)
	if sql {
		w.replace(strings.TrimSuffix(s.file, ".sql"), s.changes())
	}
	e := epoch{loses: s.loses, remembers: slices.Contains(s.faults, forgotten)}
	for i, fault := range s.faults {
		e.steps = append(e.steps, step{fault: fault, target: 17 * i, hold: time.Second})
	}
	begun := time.Now()
	for number := range attemptsMax {
		if found := w.violations(number, e); len(found) > 0 {
			t.Logf("without %s: found after %.1f s: %s", s.name, time.Since(begun).Seconds(), found[0])
			return
		}
	}
	t.Errorf("without %s, no violation was found in %d epochs", s.name, attemptsMax)
}

// replace changes a function of the database, which is replicated.
func (w *world) replace(function string, changes map[string]string) {
	w.t.Helper()
	source, _ := migrations.GuardSource(function)
	for old, broken := range changes {
		source = strings.Replace(source, old, broken, 1)
	}
	conn := connect(w.t, w.primary)
	execute(w.t, conn, source)
	check(w.t, conn.Close(w.t.Context()))
}

// TestSafeguardsExist checks that each safeguard has a name of its own, is in the source, and has faults that exist.
func TestSafeguardsExist(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range safeguards {
		source, err := os.ReadFile("../../../" + s.file)
		if function, sql := strings.CutSuffix(s.file, ".sql"); sql {
			text, _ := migrations.GuardSource(function)
			source, err = []byte(text), nil
		}
		for old := range s.changes() {
			if n := strings.Count(string(source), old); n != 1 || err != nil {
				t.Errorf("%s: %s has the text %q %d times (%v), want once", s.name, s.file, old, n, err)
			}
		}
		if slices.Contains(names, s.name) {
			t.Errorf("there are two safeguards %q", s.name)
		}
		names = append(names, s.name)
		for _, name := range s.faults {
			if f := faultNamed(name); f.loses && !s.loses {
				t.Errorf("%s: %s loses commits", s.name, name)
			}
		}
	}
}
