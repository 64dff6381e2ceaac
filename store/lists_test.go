package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func TestLockStates(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for name, c := range map[string]struct {
		given given
		state store.LockState
	}{
		"held":                   {given{acquire}, store.LockHeld},
		"held again":             {given{acquire, release, acquire}, store.LockHeld},
		"released":               {given{acquire, release}, store.LockFree},
		"broken":                 {given{acquire, breakLock}, store.LockFree},
		"expired":                {given{acquire, expire}, store.LockExpired},
		"expired and swept":      {given{acquire, expire, sweep}, store.LockExpired},
		"expired, then released": {given{acquire, expire, release}, store.LockFree},
		"expired, then broken":   {given{acquire, expire, sweep, breakLock}, store.LockFree},
		"expired, then replaced": {given{acquire, replace}, store.LockHeld},
	} {
		s := &fixture{testbed: b, lock: store.Name(name)}
		if err := s.do(t.Context(), c.given...); err != nil {
			t.Fatal(err)
		}
		lock, err := b.Lock(t.Context(), s.lock)
		if err != nil || lock.Lock != s.lock || lock.State != c.state || lock.Token != s.newest().Token {
			t.Errorf("%s: the lock is %+v (%v), want it %s", name, lock, err, c.state)
			continue
		}
		if (lock.Holder() == nil) != (c.state == store.LockFree) {
			t.Errorf("%s: the holder is %+v", name, lock.Holder())
		}
		if holder := lock.Holder(); holder != nil && (holder.ID != uuid.Nil || holder.OwnerID != s.newest().OwnerID || holder.Token != s.newest().Token) {
			t.Errorf("%s: the holder is %+v, want %+v without its secret", name, *holder, s.newest())
		}
	}
}

// pages reads a list to its end, a few at a time, as who reads the next page does: from the last name that it was told.
func pages(t *testing.T, page func(after string) ([]string, error)) []string {
	t.Helper()
	all, after := []string{}, ""
	for {
		names, err := page(after)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			return all
		}
		all, after = append(all, names...), names[len(names)-1]
	}
}

// listNames are in byte order. The last of them are at the edge of what a prefix covers.
var listNames = []string{
	"A", "a", "a b", "a-b", "a/b", "a/b/c", "a/ä", "aa", "b", "ä", "ö/\U0010FFFF",
	"ö/\U0010FFFF" + strings.Repeat("\U0010FFFF", 120),
}

// listPrefixes is what names are asked for by: any text, not only a name.
var listPrefixes = []string{"", "a", "a/", "a/b", "/", "ö/", "ö/\U0010FFFF", "%", "a_b", "x"}

func withPrefix(names []string, prefix string) []string {
	found := []string{}
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	return found
}

func TestLocksAreListed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for _, name := range slices.Backward(listNames) {
		mintOne(t, b, store.Name(name))
	}
	for _, prefix := range listPrefixes {
		got := pages(t, func(after string) (names []string, err error) {
			locks, err := b.Locks(t.Context(), store.LockQuery{Prefix: prefix, After: after, Limit: 3})
			for _, lock := range locks {
				names = append(names, string(lock.Lock))
			}
			return names, err
		})
		if want := withPrefix(listNames, prefix); !slices.Equal(got, want) {
			t.Errorf("prefix %q: %q, want %q", prefix, got, want)
		}
	}
	b.exec(t, "update fence.fences set open = false where resource = 'a/b'")
	b.exec(t, "update fence.leases set ended_at = clock_timestamp(), end_reason = 'released' where lock = 'a/b'")
	for state, want := range map[store.LockState]int{"": 12, store.LockHeld: 11, store.LockFree: 1, store.LockExpired: 0} {
		locks, err := b.Locks(t.Context(), store.LockQuery{State: state, Limit: store.PageMax})
		if err != nil || len(locks) != want || state == store.LockFree && locks[0].Lock != "a/b" {
			t.Errorf("%d locks are %q (%v), want %d", len(locks), state, err, want)
		}
	}
}

func TestRecordsAreListed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s, other := &fixture{testbed: b, lock: "records"}, &fixture{testbed: b, lock: "records/other"}
	if err := errors.Join(s.do(t.Context(), acquire), other.do(t.Context(), acquire, wrote(with(newest)))); err != nil {
		t.Fatal(err)
	}
	for i, name := range listNames {
		if err := s.do(t.Context(), wrote(with(newest, sequence(int64(i)), key(store.Name(name)), value(name)))); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range listPrefixes {
		got := pages(t, func(after string) (names []string, err error) {
			records, err := b.Records(t.Context(), store.RecordQuery{Resource: s.lock, Prefix: prefix, After: after, Limit: 3})
			for _, record := range records {
				names = append(names, string(record.Key))
				at := slices.Index(listNames, string(record.Key))
				if record.Resource != s.lock || record.Version != int64(at)+1 || record.Token != s.newest().Token || *record.Sequence != int64(at) ||
					record.Size != int64(len(record.Key)) || record.Value != nil || record.ContentType != "text/plain" || record.UpdatedAt.IsZero() {
					t.Errorf("a record is listed as %+v", record)
				}
			}
			return names, err
		})
		if want := withPrefix(listNames, prefix); !slices.Equal(got, want) {
			t.Errorf("prefix %q: %q, want %q", prefix, got, want)
		}
	}
}

func TestRejectionsAreSelected(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	// The groups 1 to 6 were last seen that many hours after midnight.
	b.exec(t, `
		insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token, last_token, last_sequence,
			count, first_at, last_at)
		select case when n <= 3 then 'a' else 'b' end, 'k', case when n % 2 = 0 then 'token_stale' else 'token_unknown' end, '', 'http', '',
			n, 0, 0, 0, 1, midnight, midnight + n * interval '1 hour'
		from generate_series(1, 6) n, (values (timestamptz '2026-01-01 00:00Z')) m (midnight)`)
	var ids []int64
	if err := b.sql.QueryRow(t.Context(), "select array_agg(id order by fencing_token) from fence.rejections").Scan(&ids); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query store.RejectionQuery
		want  string
	}{
		{store.RejectionQuery{}, "[6 5 4 3 2 1]"},
		{store.RejectionQuery{Limit: 2}, "[6 5]"},
		{store.RejectionQuery{After: &store.RejectionMark{ID: ids[4]}, Limit: 2}, "[4 3]"},
		{store.RejectionQuery{RejectionFilter: store.RejectionFilter{Resource: "a"}}, "[3 2 1]"},
		{store.RejectionQuery{RejectionFilter: store.RejectionFilter{Verdict: store.VerdictTokenStale}}, "[6 4 2]"},
		{store.RejectionQuery{RejectionFilter: store.RejectionFilter{Resource: "b", Verdict: store.VerdictTokenUnknown}}, "[5]"},
		{store.RejectionQuery{RejectionFilter: store.RejectionFilter{Since: time.Date(2026, 1, 1, 5, 0, 0, 0, time.UTC)}}, "[6 5]"},
		{store.RejectionQuery{RejectionFilter: store.RejectionFilter{Resource: "c"}}, "[]"},
	} {
		tokens := []int64{}
		for _, found := range rejections(t, b, c.query) {
			tokens = append(tokens, found.Token)
		}
		if got := fmt.Sprint(tokens); got != c.want {
			t.Errorf("%+v: %s, want %s", c.query, got, c.want)
		}
	}
}

func TestLimitsOfLists(t *testing.T) {
	t.Parallel()
	b, ctx := newTestbed(t), t.Context()
	for _, limit := range []int{-1, 0, store.PageMax + 1} {
		_, locksErr := b.Locks(ctx, store.LockQuery{Limit: limit})
		_, recordsErr := b.Records(ctx, store.RecordQuery{Resource: "r", Limit: limit})
		_, rejectionsErr := b.Rejections(ctx, store.RejectionQuery{Limit: limit})
		for _, err := range []error{locksErr, recordsErr, rejectionsErr} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("limit %d: %v, want ErrInvalid", limit, err)
			}
		}
	}
	if _, err := b.Locks(ctx, store.LockQuery{State: "gone", Limit: 1}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an unknown state: %v, want ErrInvalid", err)
	}
}
