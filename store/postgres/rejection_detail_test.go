package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

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
