package postgres_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

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
		select l.lock, l.owner_id, l.fencing_token, l.ended_at is null and fence.runs_until(l) > clock_timestamp(), coalesce(l.end_reason, s.end_reason, ''),
			nullif(fence.runs_until(l), '-infinity'), l.ended_at, l.session_id is not null
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

// TestElectionsAreListed checks that the elections are the locks whose newest lease is a campaign's, however it ended,
// and that other metadata makes none.
func TestElectionsAreListed(t *testing.T) {
	t.Parallel()
	s := newLockSetup(t, 1)
	for lock, metadata := range map[store.Name]string{
		"b/null": `{"value":null}`, "a": `{"value":"<img src=x>"}`, "b/object": `{"value":{"value":1}}`,
		"ended": `{"value":[]}`, "late": `{"value":1}`,
		"plain": "", "other": `{"host":"a"}`, "two fields": `{"value":1,"host":"a"}`, "spaced": `{ "value":1}`,
	} {
		request := store.AcquireRequest{Lock: lock, OwnerID: "candidate"}
		if metadata != "" {
			request.Metadata = []byte(metadata)
		}
		s.granted(t, request)
	}
	lease := s.granted(t, store.AcquireRequest{Lock: "was one", OwnerID: "candidate", Metadata: []byte(`{"value":1}`)})
	if err := s.Release(t.Context(), lease.Ref()); err != nil {
		t.Fatal(err)
	}
	s.granted(t, store.AcquireRequest{Lock: "was one", OwnerID: "worker"})
	s.granted(t, store.AcquireRequest{Lock: "read", OwnerID: "worker", Mode: store.Shared,
		Metadata: []byte(`{"value":1}`)})
	s.granted(t, store.AcquireRequest{Lock: "tree", OwnerID: "worker", Scope: store.Subtree,
		Metadata: []byte(`{"value":1}`)})
	s.Exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = 'late'")
	if _, err := s.Break(t.Context(), "ended", "over"); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]string{"": "a held,b/null held,b/object held,ended free,late expired",
		"b/": "b/null held,b/object held", "c": ""} {
		query := store.ElectionQuery{Prefix: prefix, Limit: 2}
		var got []string
		for _, lock := range readPages(t, query.Limit,
			func() ([]store.Lock, error) { return s.Elections(t.Context(), query) },
			func(last store.Lock) { query.After = string(last.Lock) }) {
			got = append(got, fmt.Sprint(lock.Lock, " ", lock.State))
		}
		if strings.Join(got, ",") != want {
			t.Errorf("with %q: %q, want %q", prefix, got, want)
		}
	}
}
