package load

import (
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// group is a history that is made up: its clock moves on by a millisecond with every stamp, the database's stands where it is put.
type group struct {
	t       *testing.T
	checker *checker
	*lockHistory
}

func newStory(t *testing.T) *group {
	clock := time.Duration(0)
	c := newChecker([]string{"a"}, func() time.Duration { clock += time.Millisecond; return clock })
	return &group{t: t, checker: c, lockHistory: c.histories["a"]}
}

func leaseOf(owner, mode string, token, fromMS, ttlMS int64) api.Lease {
	at := func(ms int64) api.Time { return api.Time{Time: time.UnixMilli(ms)} }
	return api.Lease{
		Lock: "a", OwnerID: owner, LeaseID: owner, FencingToken: token, Mode: mode, TTLMS: ttlMS, GrantedAt: at(fromMS), ExpiresAt: at(fromMS + ttlMS),
	}
}

// exclusive is a lease from a time of the database's clock on, for 100 ms.
func (s *group) exclusive(token, fromMS int64) *grant {
	return s.asked("x").granted(leaseOf("x", "exclusive", token, fromMS, 100))
}

func (s *group) shared(token, fromMS int64) *grant {
	return s.asked("r").granted(leaseOf("r", "shared", token, fromMS, 100))
}

// applied is a write that was sent once, and acknowledged.
func (s *group) applied(g *grant, sequence int64, key string, version int64) *write {
	w := g.begins(sequence, key, value(g, sequence))
	w.send().admitted(api.WriteResult{Version: version})
	w.end()
	return w
}

func value(g *grant, sequence int64) string {
	return valueOf("k", number{g.lease.FencingToken, sequence}, g.lease.OwnerID)
}

func record(key string, version, token, sequence int64) api.RecordInfo {
	return api.RecordInfo{Key: key, Version: version, FencingToken: token, Sequence: &sequence}
}

func got(text string, version, token, sequence int64) lockclient.Record {
	return lockclient.Record{Value: []byte(text), Version: version, Token: api.FencingToken{Token: token, Sequence: &sequence}}
}

// wants expects violations of one property, and the words in the first of them.
func (s *group) wants(property, words string) {
	s.t.Helper()
	kept, total := s.checker.violations()
	if total == 0 {
		s.t.Fatalf("%s was not found", property)
	}
	for _, v := range kept {
		if v.Property != property || v.Lock != "a" || len(v.Evidence) == 0 {
			s.t.Errorf("got %+v, want %s with evidence", v, property)
		}
	}
	if !strings.Contains(kept[0].What, words) {
		s.t.Errorf("it says %q, want %q", kept[0].What, words)
	}
}

func (s *group) wantsNothing() {
	s.t.Helper()
	if kept, _ := s.checker.violations(); len(kept) > 0 {
		s.t.Errorf("it finds fault: %+v", kept)
	}
}

// allowedStories are what looks bad and is not.
var allowedStories = map[string]func(*group){
	"nothing": func(*group) {},
	"leases one after the other, some in the same millisecond": func(s *group) {
		g := s.exclusive(1, 1000)
		g.releaseSent()
		g = s.exclusive(2, 1000)
		g.releaseSent()
		s.exclusive(3, 1000)
		s.exclusive(4, 1100)
	},
	"a release that was sent and not answered when another was granted the lock": func(s *group) {
		g := s.exclusive(1, 1000)
		g.released(g.releaseSent())
		s.exclusive(2, 1001)
	},
	"grants that are answered in another order": func(s *group) {
		first, second := s.asked("x"), s.asked("y")
		second.granted(leaseOf("y", "exclusive", 2, 1100, 100))
		first.granted(leaseOf("x", "exclusive", 1, 1000, 100))
	},
	"readers together": func(s *group) {
		s.shared(1, 1000)
		s.shared(2, 1001)
		s.exclusive(3, 1101)
	},
	"a renewal whose answer was lost": func(s *group) {
		g := s.exclusive(1, 1000)
		g.renewalLost()
		g.renewed(leaseOf("x", "exclusive", 1, 1150, 100))
	},
	"readers release one after the other": func(s *group) {
		first, second := s.shared(1, 1000), s.shared(2, 1000)
		first.released(first.releaseSent())
		second.released(second.releaseSent())
	},
	"a release that is sent twice": func(s *group) {
		g := s.exclusive(1, 1000)
		g.releaseSent()
		s.exclusive(2, 1050)
		g.released(g.releaseSent())
	},
	"a late writer whom nobody has replaced": func(s *group) {
		g := s.exclusive(1, 1000)
		s.applied(g, 1, "k", 1)
		s.applied(g, 2, "k", 2)
	},
	"a write that was sent before a newer grant was answered": func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		a := w.send()
		s.exclusive(2, 1100)
		a.admitted(api.WriteResult{Version: 1})
		w.end()
	},
	"a replay after a newer grant": func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		s.exclusive(2, 1100)
		w.send().admitted(api.WriteResult{Version: 1, Replayed: true})
		w.end()
	},
	"a lost write that is found by a reading": func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", value(g, 1))
		w.send().lost("unavailable")
		w.end()
		s.applied(s.exclusive(2, 1100), 1, "other", 2)
		s.reads().listed([]api.RecordInfo{record("k", 1, 1, 1), record("other", 2, 2, 1)})
		s.reads().got("k", got(value(g, 1), 1, 1, 1))
		s.settled(s.reads())
	},
	"a lost write that nobody finds": func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		w.send().refused("token_stale", false)
		w.end()
		s.applied(s.exclusive(2, 1100), 1, "k", 2)
		s.reads().listed([]api.RecordInfo{record("k", 2, 2, 1)})
	},
	"a reading that was sent before the write was answered": func(s *group) {
		g := s.exclusive(1, 1000)
		r := s.reads()
		s.applied(g, 1, "k", 1)
		r.listed(nil)
		s.reads().listed([]api.RecordInfo{record("k", 1, 1, 1)})
	},
}

func TestWhatIsAllowed(t *testing.T) {
	for name, tell := range allowedStories {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			s.wantsNothing()
		})
	}
}

// TestWindows goes far beyond what is kept: what was forgotten must not be held against anybody.
func TestWindows(t *testing.T) {
	s := newStory(t)
	old := s.exclusive(1, 1000)
	kept := s.applied(old, 1, "kept", 1)
	inDoubt := old.begins(2, "doubt", "")
	inDoubt.send().lost("unavailable")
	inDoubt.end()
	var last *write
	for i := range int64(2 * writesKept) {
		g := s.exclusive(2+i, 2000+100*i)
		last = s.applied(g, 1, "k", 3+i)
	}
	records := []api.RecordInfo{record("kept", 1, 1, 1), record("doubt", 2, 1, 2), record("k", last.version, last.token, 1)}
	s.settled(func() *reading { r := s.reads(); r.listed(records); return r }())
	s.reads().got("kept", got(kept.value, 1, 1, 1))
	s.wantsNothing()
	if b := &s.ledger; len(b.writes) > writesKept || len(b.numbers) > writesKept || len(b.order) > orderKept || len(s.grants) > grantsKept {
		t.Errorf("it keeps %d writes, %d numbers, %d versions, %d grants", len(b.writes), len(b.numbers), len(b.order), len(s.grants))
	}
	for range 2 * barriersKept {
		s.reads().listed(records)
	}
	if len(s.ledger.barriers) > barriersKept {
		t.Errorf("it keeps %d readings", len(s.ledger.barriers))
	}

	s.reads().listed([]api.RecordInfo{record("k", last.version+1, 1, 2)})
	if kept, _ := s.checker.violations(); len(kept) == 0 || len(kept) > violationsKept {
		t.Errorf("%d violations are kept", len(kept))
	}
	for range 2 * violationsKept {
		s.exclusive(1, 1000)
	}
	if kept, total := s.checker.violations(); len(kept) != violationsKept || total <= violationsKept {
		t.Errorf("%d of %d violations are kept", len(kept), total)
	}
}
