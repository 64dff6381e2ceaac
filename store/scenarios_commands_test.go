package store_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// direct does what no session does.
func (s *scenario) administer(t *testing.T, command string, words []string) string {
	switch command {
	case "freeze":
		s.sessionCalled(t, words[0]).frozen = true
		return "ok"
	case "thaw":
		return s.thaw(t, s.sessionCalled(t, words[0]))
	case "expire":
		return s.expire(t, words[0])
	case "hold-out":
		return s.holdOut(t, words[0])
	case "expire-session":
		s.exec(t, "update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' where session_id = $1",
			s.sessionCalled(t, words[0]).session)
		return "ok"
	case "run-out":
		return s.runOut(t, words[0])
	case "policy":
		return s.policy(t, words)
	case "another-database":
		s.exec(t, "update fence.database_identity set system_identifier = system_identifier - 1")
		return "ok"
	case "fence":
		return s.showFence(t, store.Name(words[0]))
	case "leases":
		return s.showLeases(t, words[0])
	case "records":
		return s.showRecords(t, store.Name(words[0]))
	case "rejections":
		return s.showRejections(t)
	}
	t.Fatalf("there is no command %q", command)
	return ""
}

func (s *scenario) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.admin.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// thaw sends all that the session had to say.
func (s *scenario) thaw(t *testing.T, a *scenarioSession) string {
	a.frozen = false
	var lines []string
	for _, script := range a.unsent {
		lines = append(lines, s.perform(t, a, script))
	}
	a.unsent = nil
	return cmp.Or(strings.Join(lines, "\n"), "ok")
}

// expire lets the lease run out. Nothing sweeps here unless a session does.
func (s *scenario) expire(t *testing.T, lock string) string {
	s.exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1 and "+
		"ended_at is null", lock)
	return "ok"
}

// holdOut lets the lease reach its hold_until, until which it was renewed.
func (s *scenario) holdOut(t *testing.T, lock string) string {
	s.exec(t, `
		update fence.leases l set hold_until = now.at, expires_at = now.at from (select clock_timestamp() as at) now
		where l.lock = $1 and l.ended_at is null and l.hold_until is not null`, lock)
	return "ok"
}

// runOut waits until a lease has run out by itself, as others see it.
func (s *scenario) runOut(t *testing.T, lock string) string {
	for end := time.Now().Add(scenarioPatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var over bool
		err := s.admin.QueryRow(t.Context(), `
			select max(fence.runs_until(l)) <= clock_timestamp() from fence.leases l where l.lock = $1`, lock).Scan(&over)
		if err != nil {
			t.Fatal(err)
		}
		if over {
			return "ok"
		}
	}
	return "it does not run out"
}

func (s *scenario) policy(t *testing.T, words []string) string {
	policy := store.Policy{Prefix: words[0], Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}
	for _, word := range words[1:] {
		switch word {
		case "external":
			policy.Authority = store.AuthorityExternal
		case "require_lease_id":
			policy.RequireLeaseID = true
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

// showRejections shows what a gateway would have recorded of the sessions' rejections.
func (s *scenario) showRejections(t *testing.T) string {
	once, cancel := context.WithCancel(t.Context())
	cancel()
	s.recorder.Run(once, func(err error) { t.Fatal(err) })
	rejections, err := s.store.Rejections(t.Context(), store.RejectionQuery{Limit: store.PageMax})
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(rejections))
	for i, r := range rejections {
		lines[i] = fmt.Sprintf("%s: %s, token %s of %s, from %s, seen %d×",
			r.Resource, verdictText(r.Verdict, r.Reason), s.token(r.Token), cmp.Or(r.OwnerID, "nobody known"), r.Address,
			r.Count)
	}
	slices.Reverse(lines)
	return cmp.Or(strings.Join(lines, "\n"), "none")
}
