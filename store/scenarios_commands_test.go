package store_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// administer runs a command that is no session's.
func (s *scenario) administer(t *testing.T, command *datadriven.TestData, words []string) string {
	switch command.Cmd {
	case "sql":
		s.exec(t, command.Input)
		return "ok"
	case "expire":
		s.exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1 and "+
			"ended_at is null", words[0])
		return "ok"
	case "policy":
		return s.policy(t, words)
	case "fence":
		return s.showFence(t, store.Name(words[0]))
	case "leases":
		return s.showLeases(t, words[0])
	case "records":
		return s.showRecords(t, store.Name(words[0]))
	}
	t.Fatalf("there is no command %q", command.Cmd)
	return ""
}

func (s *scenario) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.admin.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *scenario) policy(t *testing.T, words []string) string {
	policy := store.Policy{Prefix: words[0], Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}
	for _, word := range words[1:] {
		switch word {
		case "external":
			policy.Authority = store.AuthorityExternal
		case "require_live_lease":
			policy.RequireLiveLease = true
		case "hold_an_hour":
			policy.MaxHold = time.Hour
		default:
			t.Fatalf("there is no policy %q", word)
		}
	}
	if err := s.store.PutPolicy(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	return "ok"
}

func (s *scenario) showFence(t *testing.T, resource store.Name) string {
	fence, err := s.store.Fence(t.Context(), resource)
	if err != nil {
		return err.Error()
	}
	state := map[bool]string{true: "open", false: "closed"}[fence.Open]
	return fmt.Sprintf("granted %s, %s, last %s.%d", s.token(fence.GrantedToken), state, s.token(fence.LastToken),
		fence.LastSequence)
}

// scenarioLease is a lease; early says that it was granted while the one before it was live, which P1 forbids.
type scenarioLease struct {
	Token        int64
	Owner, State string
	Note         *string
	Early        bool
}

func (s *scenario) showLeases(t *testing.T, lock string) string {
	rows, err := s.admin.Query(t.Context(), `
		select l.fencing_token, l.owner_id,
			coalesce(l.end_reason, case when fence.runs_until(l) > clock_timestamp() then 'live' else 'expired, not swept' end), l.end_note,
			l.mode = 'exclusive' and coalesce(l.granted_at < lag(least(l.ended_at, fence.runs_until(l))) over (order by l.fencing_token), false)
		from fence.leases l where l.lock = $1 order by l.fencing_token`, lock)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := pgx.CollectRows(rows, pgx.RowToStructByPos[scenarioLease])
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(leases))
	for i, l := range leases {
		lines[i] = fmt.Sprintf("%s of %s: %s", s.token(l.Token), l.Owner, l.State)
		if l.Early {
			lines[i] += ", granted before the one before it had ended"
		}
	}
	return cmp.Or(strings.Join(lines, "\n"), "none")
}

func (s *scenario) showRecords(t *testing.T, resource store.Name) string {
	records, err := s.store.Records(t.Context(), store.RecordQuery{Resource: resource, Limit: store.PageMax})
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(records))
	for i, listed := range records {
		record, err := s.store.Record(t.Context(), resource, listed.Key)
		if err != nil {
			t.Fatal(err)
		}
		number := ""
		if record.Sequence != nil {
			number = fmt.Sprintf(".%d", *record.Sequence)
		}
		lines[i] = fmt.Sprintf("%s=%s version %d by %s%s", record.Key, record.Value, record.Version, s.token(record.Token),
			number)
	}
	return cmp.Or(strings.Join(lines, "\n"), "none")
}
