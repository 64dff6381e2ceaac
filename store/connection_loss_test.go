package store_test

import (
	"testing"

	"github.com/fencegate/fencegate/store"
)

// TestWriteWhoseConnectionIsCut checks that a write whose connection breaks before its answer has an unknown outcome,
// and that the same write, sent again, is applied exactly once (P10).
func TestWriteWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when  moment
		again string
	}{
		"before the write arrives":    {beforeServer, "admitted v2"},
		"before the answer gets back": {beforeClient, "admitted v2 replayed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			cutter := newCutter(t, b)
			s := &fixture{testbed: b.through(cutter.Through(t)), lock: "lock"}
			if err := s.do(t.Context(), acquire, wrote(with(newest, sequence(1)))); err != nil {
				t.Fatal(err)
			}
			write := with(newest, sequence(2), value("this write is cut"))(s)
			cutter.Cut(c.when, string(write.Value))
			_, err := bySet(t.Context(), s.Store, write)
			if err := expectUnavailable(err, store.OutcomeUnknown); err != nil {
				t.Error(err)
			}
			cutter.Cut(never, "")
			for i, want := range []string{c.again, "admitted v2 replayed"} {
				result, err := bySet(t.Context(), s.Store, write)
				if got := brief(result); err != nil || got != want {
					t.Errorf("sent again, time %d: %s (%v), want %s", i+1, got, err, want)
				}
			}
		})
	}
}

// TestAcquireWhoseConnectionIsCut checks that an acquire whose answer was lost returns the lease that was granted when
// it is sent again with its request_id.
func TestAcquireWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	cutter := newCutter(t, b)
	s := &fixture{testbed: b.through(cutter.Through(t)), lock: "lock"}
	if err := s.do(t.Context(), acquire, release); err != nil {
		t.Fatal(err)
	}
	cutter.Cut(beforeClient, "requester")
	if err := expectUnavailable(request("r")(t.Context(), s), store.OutcomeUnknown); err != nil {
		t.Error(err)
	}
	cutter.Cut(never, "")
	if err := s.do(t.Context(), request("r")); err != nil {
		t.Fatal(err)
	}
	leases := b.Count(t, "select count(*) from fence.leases where request_id = 'r'")
	if leases != 1 || s.newest().Token != s.leases[0].Token+1 {
		t.Errorf("%d leases were granted, the newest is %+v", leases, s.newest())
	}
}
