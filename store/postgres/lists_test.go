package postgres_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// readPages reads a list of pages of at most limit rows to its end. after has the next page begin after a row.
func readPages[T any](t *testing.T, limit int, page func() ([]T, error), after func(row T)) (all []T) {
	t.Helper()
	for {
		rows, err := page()
		if err != nil || len(rows) > limit {
			t.Fatalf("a page has %d rows (%v), want at most %d", len(rows), err, limit)
		}
		all = append(all, rows...)
		if len(rows) < limit {
			return all
		}
		after(rows[len(rows)-1])
	}
}

// listNames are in byte order. The last of them are at the edge of what a prefix covers.
var listNames = []string{
	"A", "a", "a b", "a-b", "a/b", "a/b/c", "a/ä", "aa", "b", "ä", "ö/\U0010FFFF",
	"ö/\U0010FFFF" + strings.Repeat("\U0010FFFF", 120),
}

// listPrefixes is what names are asked for by: any text, not only a name.
var listPrefixes = []string{"", "a", "a/", "a/b", "/", "ö/", "ö/\U0010FFFF", "%", "a_b", "x"}

// TestListLimits checks that each list refuses queries outside its limits with an error that names the field.
func TestListLimits(t *testing.T) {
	t.Parallel()
	b, ctx := newTestbed(t), t.Context()
	long := strings.Repeat("x", store.NameBytesMax+1)
	for _, list := range []struct {
		name   string
		call   func(query any) error
		fields map[string]any // text that the error must have: the query
	}{
		{"locks", func(q any) error { _, err := b.Locks(ctx, q.(store.LockQuery)); return err },
			lockQueriesOutsideLimits(long)},
		{"count of locks", func(q any) error { _, err := b.CountLocks(ctx, q.(store.LockQuery)); return err },
			lockQueriesOutsideLimits(long)},
		{"leases", func(q any) error { _, err := b.Leases(ctx, q.(store.LeaseQuery)); return err }, map[string]any{
			"state must be": store.LeaseQuery{State: "free", Limit: 1}, "limit is 0": store.LeaseQuery{},
			"limit is 1001": store.LeaseQuery{Limit: 1001}, "after the token -1": store.LeaseQuery{AfterToken: -1, Limit: 1},
			"owner_id has a": store.LeaseQuery{OwnerID: "\n", Limit: 1},
		}},
		{"sessions", func(q any) error { _, err := b.Sessions(ctx, q.(store.SessionQuery)); return err }, map[string]any{
			"state must be": store.SessionQuery{State: "held", Limit: 1}, "limit is 0": store.SessionQuery{},
			"limit is 1001": store.SessionQuery{Limit: 1001}, "owner_id has 513": store.SessionQuery{OwnerID: long, Limit: 1},
			"hexadecimal": store.SessionQuery{AfterMicros: 1, AfterSortKey: "x", Limit: 1},
		}},
		{"records", func(q any) error { _, err := b.Records(ctx, q.(store.RecordQuery)); return err }, map[string]any{
			"limit is -1": store.RecordQuery{Resource: "r", Limit: -1}, "limit is 0": store.RecordQuery{Resource: "r"},
			"limit is 1001": store.RecordQuery{Resource: "r", Limit: 1001},
		}},
		{"rejections", func(q any) error { _, err := b.Rejections(ctx, q.(store.RejectionQuery)); return err },
			map[string]any{
				"limit is -1": store.RejectionQuery{Limit: -1}, "limit is 0": store.RejectionQuery{},
				"limit is 1001": store.RejectionQuery{Limit: 1001}, "sort must be": store.RejectionQuery{Order: "count", Limit: 1},
			}},
	} {
		for field, query := range list.fields {
			if err := list.call(query); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), field) {
				t.Errorf("%s, %+v: %v, want ErrInvalid with %q", list.name, query, err, field)
			}
		}
	}
	if leases, err := b.Leases(ctx, store.LeaseQuery{AfterToken: math.MaxInt64, Limit: 1}); err != nil {
		t.Errorf("leases after the greatest token: %v (%v), want no error", leases, err)
	}
}

func lockQueriesOutsideLimits(long string) map[string]any {
	return map[string]any{
		"sort must be":      store.LockQuery{Limit: 1, Sort: "owner"},
		"state must be":     store.LockQuery{Limit: 1, State: "gone"},
		"queue_max is -1":   store.LockQuery{Limit: 1, QueueMax: -1},
		"queue_max is 1001": store.LockQuery{Limit: 1, QueueMax: 1001},
		"contains has 513":  store.LockQuery{Limit: 1, Contains: long},
		"contains is not":   store.LockQuery{Limit: 1, Contains: "\xff"},
		"contains has a":    store.LockQuery{Limit: 1, Contains: "\x00"},
		"owner_id has 513":  store.LockQuery{Limit: 1, OwnerID: long},
		"owner_id is not":   store.LockQuery{Limit: 1, OwnerID: "\xff"},
		"limit is 0":        store.LockQuery{},
	}
}

// leaseModel is a lease as lists must show it.
type leaseModel struct {
	Lock, Owner string
	Token       int64
	Runs        bool
	Reason      string
	Until       *time.Time // nil: its session is forgotten
	Ended       *time.Time
	InSession   bool
}

func (m leaseModel) String() string {
	text := fmt.Sprintf("%s %s %d runs %t %s in session %t until %v", m.Lock, m.Owner, m.Token, m.Runs, m.Reason,
		m.InSession, m.Until.UTC())
	if m.Runs {
		return text
	}
	return fmt.Sprint(text, " ended ", m.Ended.UTC())
}

func describeLease(l store.LeaseInfo) string {
	runs := l.State == store.LeaseRunning
	return leaseModel{string(l.Lock), l.OwnerID, l.Token, runs, l.EndReason, &l.ExpiresAt, &l.EndedAt,
		l.InSession}.String()
}

// leaseModels are all leases, the newest token first.
func (b *testbed) leaseModels(t *testing.T) []leaseModel {
	t.Helper()
	models := collect[leaseModel](t, b, `
		select l.lock, l.owner_id, l.fencing_token, l.ended_at is null and l.expires_at > clock_timestamp(), coalesce(l.end_reason,
				case when s.ended_at < l.expires_at then s.end_reason end, ''),
			nullif(l.expires_at, '-infinity'), l.ended_at, l.session_id is not null
		from fence.leases l left join fence.sessions s on s.session_id = l.session_id
		order by l.fencing_token desc, l.lock collate "C"`)
	for i := range models {
		m := &models[i]
		if m.Runs {
			m.Reason = ""
			continue
		}
		m.Reason, m.Until = cmp.Or(m.Reason, "expired"), cmp.Or(m.Until, m.Ended)
		m.Ended = cmp.Or(m.Ended, m.Until)
	}
	return models
}

// TestLeaseLists checks that lists of leases, with every filter and page size, are equal to the rows filtered here;
// before and after sweeps.
func TestLeaseLists(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newLockSetup(t, seed)
	for _, name := range listNames {
		s.one(t, store.Name(name))
		s.one(t, store.Name("b/"+name))
	}
	// Tokens of different locks may be equal, where those of one were another service's before.
	s.Exec(t, "update fence.leases set fencing_token = (select max(fencing_token) from fence.leases) where (lock, "+
		"fencing_token) in (select lock, max(fencing_token) from fence.leases where lock > 'a' group by lock)")
	s.endSessions(t)
	s.checkLeaseLists(t)
	sweeper := newSweeper(t, s.Store, postgres.SweeperConfig{})
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkLeaseLists(t)
	s.Exec(t, "delete from fence.sessions where settled")
	s.checkLeaseLists(t)
}

func (s *lockSetup) checkLeaseLists(t *testing.T) {
	t.Helper()
	models := s.leaseModels(t)
	for range 40 {
		query := store.LeaseQuery{
			Lock:    pick(s.random, []store.Name{"", "", store.Name(pick(s.random, listNames)), "nothing"}),
			Limit:   1 + s.random.IntN(30),
			OwnerID: pick(s.random, append([]string{"", "", "", "before"}, lockOwners...)),
			State:   pick(s.random, []store.LeaseState{"", store.LeaseRunning, store.LeaseEnded}),
		}
		var want, got []string
		for _, m := range models {
			if (query.Lock == "" || m.Lock == string(query.Lock)) && (query.OwnerID == "" || m.Owner == query.OwnerID) &&
				(query.State == "" || m.Runs == (query.State == store.LeaseRunning)) {
				want = append(want, m.String())
			}
		}
		page := query
		for _, lease := range readPages(t, query.Limit,
			func() ([]store.LeaseInfo, error) { return s.Leases(t.Context(), page) },
			func(last store.LeaseInfo) { page.AfterToken, page.AfterLock = last.Token, string(last.Lock) }) {
			got = append(got, describeLease(lease))
			if lease.ID != uuid.Nil || lease.SessionID != uuid.Nil {
				t.Fatalf("a secret is shown: %+v", lease)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v:\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestBrokenLeaseIsListed checks that a broken lease is listed with its reason and metadata.
func TestBrokenLeaseIsListed(t *testing.T) {
	t.Parallel()
	s := newLockSetup(t, 1)
	s.granted(t, store.AcquireRequest{Lock: "job", OwnerID: "worker", Metadata: []byte(`{"a":1}`)})
	if _, err := s.Break(t.Context(), "job", "it <b>hangs</b>"); err != nil {
		t.Fatal(err)
	}
	leases, err := s.Leases(t.Context(), store.LeaseQuery{Limit: 1})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	if lease := leases[0]; lease.EndReason != "broken" || lease.EndNote != "it <b>hangs</b>" ||
		string(lease.Metadata) != `{"a":1}` || lease.Mode != store.Exclusive {
		t.Errorf("the lease is %+v", lease)
	}
}

// made is a session as it was made.
type made struct {
	owner, handle string
	state         store.SessionState
	created       time.Time
	leases        int64
}

// TestSessionLists checks that sessions are listed by creation, with every filter, in pages, and without their ids.
func TestSessionLists(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	var all []made
	for i := range 30 {
		m := made{owner: lockOwners[i%3], state: store.SessionLive}
		session, err := b.CreateSession(t.Context(), store.SessionRequest{OwnerID: m.owner, TTL: time.Hour,
			Metadata: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		for range i % 4 {
			m.leases++
			lock := store.Name(fmt.Sprint("job ", i, " ", m.leases))
			b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: m.owner, SessionID: session.ID})
		}
		if i%5 == 1 {
			m.state, m.leases = store.SessionEnded, 0
			if _, err := b.EndSession(t.Context(), session.ID); err != nil {
				t.Fatal(err)
			}
		}
		if i%5 == 2 {
			m.state, m.leases = store.SessionExpired, 0
			b.Exec(t, drive.ExpireSession, session.ID)
		}
		m.handle = session.ID.String()[:8]
		m.created = session.CreatedAt.Add(-time.Duration(i%7) * time.Minute).Truncate(time.Minute) // several at the same time
		b.Exec(t, "update fence.sessions set created_at = $2 where session_id = $1", session.ID, m.created)
		all = append(all, m)
	}
	text := func(m made) string { return fmt.Sprint(m.owner, m.handle, m.state, m.created.UTC(), m.leases) }
	for _, state := range []store.SessionState{"", store.SessionLive, store.SessionEnded, store.SessionExpired} {
		for _, owner := range []string{"", lockOwners[0], "nobody"} {
			var want, got []string
			var seen []time.Time
			for _, m := range all {
				if (state == "" || m.state == state) && (owner == "" || m.owner == owner) {
					want = append(want, text(m))
				}
			}
			query := store.SessionQuery{State: state, OwnerID: owner, Limit: 4}
			for _, s := range readPages(t, query.Limit,
				func() ([]store.SessionInfo, error) { return b.Sessions(t.Context(), query) },
				func(last store.SessionInfo) {
					query.AfterMicros, query.AfterSortKey = last.CreatedAt.UnixMicro(), last.SortKey
				}) {
				if s.ID != uuid.Nil || string(s.Metadata) != `{"n":1}` || s.TTL != time.Hour {
					t.Fatalf("shown is %+v", s)
				}
				got, seen = append(got, text(made{s.OwnerID, s.Handle, s.State, s.CreatedAt, s.Leases})), append(seen, s.CreatedAt)
			}
			if !slices.IsSortedFunc(seen, func(a, b time.Time) int { return cmp.Compare(b.UnixMicro(), a.UnixMicro()) }) {
				t.Errorf("%s of %q are not the newest first", state, owner)
			}
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s of %q:\n%s\nwant\n%s", state, owner, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}
