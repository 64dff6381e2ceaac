package postgres_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

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
			b.Exec(t, expireSessionSQL, session.ID)
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
