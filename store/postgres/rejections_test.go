package postgres_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// midnight is when the seeded groups began.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// seedGroups makes that many groups of all kinds, and returns them, the newest first.
func seedGroups(t *testing.T, b *testbed, groups int) []store.Rejection {
	t.Helper()
	b.Exec(t, `
		insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token, last_token,
			last_sequence,
			owner_id, late_ms, count, first_at, last_at, changed_at)
		select (array['a', 'a/b', 'ab', 'b', 'ä/%'])[1 + n / 7 % 5], 'k',
			(array['token_stale', 'token_unknown', 'lease_expired'])[1 + n % 3], (array['superseded', 'released', 'reused'])[1 + n / 3
				% 3],
			(array['http', 'bulk'])[1 + n / 2 % 2], '192.0.2.' || n % 7, n, n + 5, n % 11, 0, (array['w1', 'w2', null])[1 + n / 5
				% 3],
			case when n % 4 > 0 then n * 37 % 1000 end, 1 + n * 13 % 29, $2::timestamptz + n * interval '1 minute',
			$2::timestamptz + n * interval '1 minute' + n % 5 * interval '1 hour', clock_timestamp() - n * 7919 % 1000 * interval
				'1 second'
		from generate_series(1, $1) n`, groups, midnight)
	all := rejections(t, b, store.RejectionQuery{})
	if len(all) != groups {
		t.Fatalf("%d groups are listed, want %d", len(all), groups)
	}
	return all
}

// everyFilter makes filters of every set of fields.
func everyFilter() []store.RejectionFilter {
	fields := []func(*store.RejectionFilter){
		func(f *store.RejectionFilter) { f.Resource = "a/b" },
		func(f *store.RejectionFilter) { f.Prefix = "a" },
		func(f *store.RejectionFilter) { f.Verdict = store.VerdictTokenStale },
		func(f *store.RejectionFilter) { f.Reason = "superseded" },
		func(f *store.RejectionFilter) { f.Source = "http" },
		func(f *store.RejectionFilter) { f.OwnerID = "w2" },
		func(f *store.RejectionFilter) { f.Since = midnight.Add(2 * time.Hour) },
		func(f *store.RejectionFilter) { f.Until = midnight.Add(5 * time.Hour) },
	}
	filters := []store.RejectionFilter{{Prefix: "ä/%"}, {Prefix: "a_"}, {OwnerID: "w3"}, {Kind: store.KindZombie},
		{Kind: store.KindNumbering, Source: "http"}, {Kind: store.KindMisuse, OwnerID: "w2"}}
	for set := range 1 << len(fields) {
		var filter store.RejectionFilter
		for i, field := range fields {
			if set>>i&1 == 1 {
				field(&filter)
			}
		}
		filters = append(filters, filter)
	}
	return filters
}

func idsOf(rejections []store.Rejection) []int64 {
	ids := make([]int64, len(rejections))
	for i, r := range rejections {
		ids[i] = r.ID
	}
	return ids
}

func byLastSeen(a, b store.Rejection) int {
	return cmp.Or(b.ChangedAt.Compare(a.ChangedAt), cmp.Compare(b.ID, a.ID))
}

// TestRejectionFilters checks that every filter, alone and with others, selects its rejections, in both orders, for
// lists, exports and summaries.
func TestRejectionFilters(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	all := seedGroups(t, b, 600)
	empty := 0
	for _, filter := range everyFilter() {
		want := slices.DeleteFunc(slices.Clone(all), func(r store.Rejection) bool { return !filter.Matches(&r) })
		if len(want) == 0 {
			empty++
		}
		summary, err := b.RejectionSummary(t.Context(), filter)
		if counted := summaryOf(want); err != nil || !reflect.DeepEqual(summary, counted) {
			t.Errorf("%+v: the summary is %+v (%v), want %+v", filter, summary, err, counted)
		}
		for _, order := range []store.RejectionOrder{store.RejectionsByFirstSeen, store.RejectionsByLastSeen} {
			if order == store.RejectionsByLastSeen {
				slices.SortFunc(want, byLastSeen)
			}
			got := rejections(t, b, store.RejectionQuery{RejectionFilter: filter, Order: order})
			if !slices.Equal(idsOf(got), idsOf(want)) {
				t.Errorf("%+v by %s: %d are listed, want %d", filter, order, len(got), len(want))
			}
		}
	}
	if empty > len(everyFilter())/2 {
		t.Errorf("%d filters select nothing: they test nothing", empty)
	}
}

// summaryOf counts plainly.
func summaryOf(found []store.Rejection) store.RejectionSummary {
	summary := store.RejectionSummary{ByVerdict: map[store.Verdict]int64{}, ByKind: map[store.RejectionKind]int64{}}
	owners, resources := map[string]*store.RejectionTop{}, map[string]*store.RejectionTop{}
	for _, r := range found {
		summary.Writes += r.Count
		summary.Groups++
		summary.ByVerdict[r.Verdict] += r.Count
		summary.ByKind[r.Kind()] += r.Count
		addTo(resources, string(r.Resource), r)
		if r.OwnerID != "" {
			addTo(owners, r.OwnerID, r)
		}
	}
	summary.Owners, summary.Resources = topOf(owners), topOf(resources)
	return summary
}

func addTo(tops map[string]*store.RejectionTop, name string, r store.Rejection) {
	top := tops[name]
	if top == nil {
		top = &store.RejectionTop{Name: name}
		tops[name] = top
	}
	top.Writes += r.Count
	top.Groups++
	if r.Late != nil && (top.LateMax == nil || *r.Late > *top.LateMax) {
		top.LateMax = r.Late
	}
	if r.LastAt.After(top.LastAt) {
		top.LastAt = r.LastAt
	}
}

func topOf(tops map[string]*store.RejectionTop) []store.RejectionTop {
	var sorted []store.RejectionTop
	for _, top := range tops {
		sorted = append(sorted, *top)
	}
	slices.SortFunc(sorted, func(a, b store.RejectionTop) int {
		return cmp.Or(cmp.Compare(b.Writes, a.Writes), strings.Compare(a.Name, b.Name))
	})
	return sorted[:min(len(sorted), store.RejectionTopMax)]
}

// TestRejectionSummaryOfMany checks that the summary names the greatest owners and resources, up to its bound.
func TestRejectionSummaryOfMany(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	seedGroups(t, b, 300)
	b.Exec(t, "update fence.rejections set resource = 'r' || id % 70, owner_id = 'w' || id % 90, count = 1 + id * 31 % 97")
	summary, err := b.RejectionSummary(t.Context(), store.RejectionFilter{})
	if want := summaryOf(rejections(t, b, store.RejectionQuery{})); err != nil || !reflect.DeepEqual(summary, want) {
		t.Errorf("the summary is %+v (%v), want %+v", summary, err, want)
	}
	if len(summary.Owners) != store.RejectionTopMax || len(summary.Resources) != store.RejectionTopMax {
		t.Errorf("%d owners and %d resources are named", len(summary.Owners), len(summary.Resources))
	}
}

// changeGroups changes groups, and adds some, until end is closed. It returns the IDs that it has changed.
func changeGroups(t *testing.T, b *testbed, of []store.Rejection, begun chan<- struct{},
	end <-chan struct{}) map[int64]bool {
	touched := map[int64]bool{}
	for n := 0; ; n++ {
		select {
		case <-end:
			return touched
		default:
		}
		id := of[rand.IntN(len(of)/2)*2].ID // every second is left alone
		touched[id] = true
		_, err := b.SQL.Exec(t.Context(),
			"update fence.rejections set count = count + 1, changed_at = clock_timestamp() where id = $1", id)
		if err == nil {
			_, err = b.SQL.Exec(t.Context(), `
				insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token,
					last_token, last_sequence,
					count, first_at, last_at)
				values ('new', 'k', 'token_stale', '', 'http', '', $1, 0, 0, 0, 1, clock_timestamp(), clock_timestamp())`, n+1)
		}
		if err != nil {
			t.Error(err)
			return touched
		}
		if n == 10 {
			close(begun)
		}
	}
}

// TestRejectionPagesWhileTheyChange checks that pages list no group twice while groups change and are added: by
// first_seen every group, by last_seen every group that has not changed.
func TestRejectionPagesWhileTheyChange(t *testing.T) {
	t.Parallel()
	for _, order := range []store.RejectionOrder{store.RejectionsByFirstSeen, store.RejectionsByLastSeen} {
		b := newTestbed(t)
		all := seedGroups(t, b, 900)
		begun, end := make(chan struct{}), make(chan struct{})
		var touched map[int64]bool
		var changing sync.WaitGroup
		changing.Go(func() { touched = changeGroups(t, b, all, begun, end) })
		<-begun
		query := store.RejectionQuery{Order: order, Limit: 7}
		var read []store.Rejection
		for {
			page := rejections(t, b, query)
			if len(page) == 0 {
				break
			}
			read = append(read, page...)
			last := page[len(page)-1]
			query.After = &store.RejectionMark{ID: last.ID, ChangedAt: last.ChangedAt}
		}
		close(end)
		changing.Wait()
		expectPages(t, order, all, read, touched)
	}
}

func expectPages(t *testing.T, order store.RejectionOrder, all, read []store.Rejection, touched map[int64]bool) {
	t.Helper()
	found := map[int64]int{}
	for i, r := range read {
		found[r.ID]++
		if i == 0 {
			continue
		}
		if before := read[i-1]; order == store.RejectionsByFirstSeen && before.ID <= r.ID ||
			order == store.RejectionsByLastSeen && byLastSeen(before, r) >= 0 {
			t.Errorf("by %s: %d of %s stands after %d of %s", order, r.ID, r.ChangedAt, before.ID, before.ChangedAt)
		}
	}
	for _, r := range all {
		if n := found[r.ID]; n > 1 || n == 0 && (order == store.RejectionsByFirstSeen || !touched[r.ID]) {
			t.Errorf("by %s: %d is listed %d times", order, r.ID, n)
		}
	}
}

// TestBadRejectionFilters checks that filters outside their limits are refused with an error that names the field.
func TestBadRejectionFilters(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for field, filter := range map[string]store.RejectionFilter{
		"prefix":   {Prefix: strings.Repeat("x", store.NameBytesMax+1)},
		"reason":   {Reason: strings.Repeat("x", 101)},
		"source":   {Source: "\xff"},
		"owner_id": {OwnerID: "a\x00"},
		"code":     {Verdict: "admitted"},
		"kind":     {Kind: "ghost"},
	} {
		_, err := b.Rejections(t.Context(), store.RejectionQuery{RejectionFilter: filter, Limit: 1})
		_, summaryErr := b.RejectionSummary(t.Context(), filter)
		for _, err := range []error{err, summaryErr} {
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: %v, want ErrInvalid that names it", field, err)
			}
		}
	}
	if _, err := b.Rejections(t.Context(), store.RejectionQuery{Order: "count", Limit: 1}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an unknown order: %v, want ErrInvalid", err)
	}
}

// TestRejectionDetail checks that a rejection comes with the leases of its two tokens, and that names outside those
// that the caller sees are left out as if they did not exist.
func TestRejectionDetail(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := b.given(t, "eu/jobs/1", acquire, replace)
	recorder := postgres.NewRecorder(b.Store)
	recorder.Record(rejectedBy(t, s, with(first)), "http", "192.0.2.1", "")
	flushAll(t, recorder)
	id := rejections(t, b, store.RejectionQuery{})[0].ID

	for _, within := range [][]string{nil, {"eu"}, {"eu/jobs/1"}} {
		got, err := b.RejectionDetail(t.Context(), id, within)
		if err != nil || got.ID != id || got.Lease == nil || got.Lease.Token != s.leases[0].Token ||
			got.Successor == nil || got.Successor.Token != got.SupersededBy() {
			t.Errorf("within %q: the rejection is %+v with the leases %+v and %+v (%v)", within, got.Rejection, got.Lease,
				got.Successor, err)
		}
	}
	for _, other := range []struct {
		id     int64
		within []string
	}{{id + 1, nil}, {id, []string{"us"}}, {id, []string{}}} {
		if got, err := b.RejectionDetail(t.Context(), other.id, other.within); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%d within %q: %+v (%v), want ErrNotFound", other.id, other.within, got, err)
		}
	}
}

// TestRejectionDetailBelowASubtree checks that the lease of a subtree explains a rejection on a name below it, unless the
// caller may not see the name of the subtree.
func TestRejectionDetailBelowASubtree(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	lease := b.granted(t, store.AcquireRequest{Lock: "eu", OwnerID: "w", TTL: time.Hour, Scope: store.Subtree})
	recorder := postgres.NewRecorder(b.Store)
	recorder.Record(&store.RejectedError{Verdict: store.VerdictVersionMismatch, Resource: "eu/jobs/1", Token: lease.Token},
		"http", "192.0.2.1", "")
	flushAll(t, recorder)
	id := rejections(t, b, store.RejectionQuery{})[0].ID
	all, err := b.RejectionDetail(t.Context(), id, nil)
	if err != nil || all.Lease == nil || all.Lease.Lock != "eu" || all.Successor != nil {
		t.Errorf("the lease is %+v, the successor %+v (%v); want the lease of eu alone", all.Lease, all.Successor, err)
	}
	below, err := b.RejectionDetail(t.Context(), id, []string{"eu/jobs"})
	if err != nil || below.Lease != nil {
		t.Errorf("a caller who sees eu/jobs alone gets the lease %+v (%v)", below.Lease, err)
	}
}
