package k8slock_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/k8slock"
)

// testRecord plays the elector, and checks what it is told.
func testRecord(t *testing.T, url string) {
	ctx, client := await.Context(t), newClient(t, url)
	a, b := k8slock.New(client, t.Name(), "a"), k8slock.New(client, t.Name(), "b")

	if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
		t.Errorf("before the first term: %v, expected not found", err)
	}
	check(t, a.Create(ctx, record("a", 60)))
	if err := b.Create(ctx, record("b", 60)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a creation while another candidate leads: %v, expected that it exists already", err)
	}
	if err := b.Update(ctx, record("b", 60)); !apierrors.IsConflict(err) {
		t.Errorf("an update while another candidate leads: %v, expected a conflict", err)
	}
	check(t, b.Update(ctx, record("", 1))) // a candidate that does not lead has nothing to release

	first, firstRaw, err := b.Get(ctx)
	check(t, err)
	if first.HolderIdentity != "a" || first.LeaseDurationSeconds != 60 ||
		int64(first.LeaderTransitions) != a.Lease().FencingToken() {
		t.Errorf("the record is %+v, expected that of a's term %d", first, a.Lease().FencingToken())
	}
	check(t, a.Update(ctx, record("a", 60)))
	renewed, renewedRaw, err := b.Get(ctx)
	check(t, err)
	if bytes.Equal(firstRaw, renewedRaw) {
		t.Errorf("the record is %s before and after a renewal", firstRaw)
	}
	if !renewed.AcquireTime.Equal(&first.AcquireTime) || renewed.RenewTime.Before(&first.RenewTime) ||
		renewed.LeaderTransitions != first.LeaderTransitions {
		t.Errorf("a renewal made %+v of %+v", renewed, first)
	}

	check(t, a.Update(ctx, record("", 1)))
	released, _, err := b.Get(ctx)
	check(t, err)
	if released.HolderIdentity != "" || released.LeaderTransitions != first.LeaderTransitions {
		t.Errorf("after the release the record is %+v", released)
	}
	check(t, b.Update(ctx, record("b", 60)))
	if b.Lease().FencingToken() <= a.Lease().FencingToken() {
		t.Errorf("b's term is %d after a's %d", b.Lease().FencingToken(), a.Lease().FencingToken())
	}
	for _, wrong := range []struct {
		identity string
		seconds  int
		says     string
	}{{"a", 60, "this candidate is \"b\""}, {"b", 0, "LeaseDuration must be at least a second"}} {
		if err := b.Update(ctx, record(wrong.identity, wrong.seconds)); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("a record of %q for %d s: %v, expected %q", wrong.identity, wrong.seconds, err, wrong.says)
		}
	}
}

// testLostTerm lets a term expire. Its candidate may not lead again before an elector would have given up, though
// nobody else leads, and neither its renewals nor its release nor its writes touch the next term.
func testLostTerm(t *testing.T, url string) {
	ctx, client := await.Context(t), newClient(t, url)
	a, b := k8slock.New(client, t.Name(), "a"), k8slock.New(client, t.Name(), "b")
	check(t, a.Create(ctx, record("a", 1)))
	await.True(t, "the end of the lease", func() bool {
		now, _, err := b.Get(ctx)
		check(t, err)
		return now.HolderIdentity == ""
	})
	lost := time.Now()
	if err := a.Update(ctx, record("a", 1)); !apierrors.IsConflict(err) {
		t.Errorf("a renewal of the lost term: %v, expected a conflict", err)
	}
	check(t, b.Update(ctx, record("b", 60)))
	term := b.Lease()
	if err := a.Update(ctx, record("a", 1)); !apierrors.IsConflict(err) {
		t.Errorf("a renewal while another candidate leads: %v, expected a conflict", err)
	}
	if _, err := a.Lease().Put(ctx, "state", []byte("late")); err == nil {
		t.Error("a write of the lost term was accepted")
	}
	_, err := term.Put(ctx, "state", []byte("new"))
	check(t, err)
	check(t, b.Update(ctx, record("", 1)))

	await.True(t, "a candidacy after the lost term", func() bool { return a.Update(ctx, record("a", 1)) == nil })
	if waited := time.Since(lost); waited < 2*time.Second {
		t.Errorf("a leads again %s after the loss of its term: its elector may not have noticed", waited)
	}
	if a.Lease().FencingToken() <= term.FencingToken() {
		t.Errorf("a's second term is %d after b's %d", a.Lease().FencingToken(), term.FencingToken())
	}
	breakTerm(t, client)
	if err := a.Update(ctx, record("", 1)); err != nil {
		t.Errorf("a release of a lost term: %v, expected none: an elector repeats it while it is a conflict", err)
	}
}
