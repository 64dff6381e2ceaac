package load

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// model builds a history. Its clock advances by a millisecond with every stamp; the database's is what a test sets.
type model struct {
	t       *testing.T
	checker *checker
	*lockHistory
}

func newModel(t *testing.T) *model {
	clock := time.Duration(0)
	c := newChecker([]string{"a"}, func() time.Duration { clock += time.Millisecond; return clock })
	return &model{t: t, checker: c, lockHistory: c.histories["a"]}
}

func leaseOf(owner, mode string, token, fromMS, ttlMS int64) api.Lease {
	at := func(ms int64) api.Time { return api.Time{Time: time.UnixMilli(ms)} }
	return api.Lease{
		Lock: "a", OwnerID: owner, LeaseID: owner, FencingToken: token, Mode: mode, TTLMS: ttlMS, GrantedAt: at(fromMS),
		ExpiresAt: at(fromMS + ttlMS),
	}
}

// exclusive is a lease from a time of the database's clock on, for 100 ms.
func (m *model) exclusive(token, fromMS int64) *grant {
	return m.acquireSent("x").granted(leaseOf("x", "exclusive", token, fromMS, 100))
}

func (m *model) shared(token, fromMS int64) *grant {
	return m.acquireSent("r").granted(leaseOf("r", "shared", token, fromMS, 100))
}

// applied is a write that was sent once, and acknowledged.
func (m *model) applied(g *grant, sequence int64, key string, version int64) *write {
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
	return lockclient.Record{Value: []byte(text), Version: version,
		Token: api.FencingToken{Token: token, Sequence: &sequence}}
}

// wants expects violations of one property, and the words in the first of them.
func (m *model) wants(property, words string) {
	m.t.Helper()
	kept, total := m.checker.violations()
	if total == 0 {
		m.t.Fatalf("%s was not found", property)
	}
	for _, v := range kept {
		if v.Property != property || v.Lock != "a" || len(v.Evidence) == 0 {
			m.t.Errorf("got %+v, want %s with evidence", v, property)
		}
	}
	if !strings.Contains(kept[0].What, words) {
		m.t.Errorf("it says %q, want %q", kept[0].What, words)
	}
}

func (m *model) wantsNothing() {
	m.t.Helper()
	if kept, _ := m.checker.violations(); len(kept) > 0 {
		m.t.Errorf("it finds fault: %+v", kept)
	}
}

// allowedHistories are what looks bad and is not.
var allowedHistories = map[string]func(*model){
	"nothing": func(*model) {},
	"leases one after the other, some in the same millisecond": func(m *model) {
		g := m.exclusive(1, 1000)
		g.releaseSent()
		g = m.exclusive(2, 1000)
		g.releaseSent()
		m.exclusive(3, 1000)
		m.exclusive(4, 1100)
	},
	"a release that was sent and not answered when another was granted the lock": func(m *model) {
		g := m.exclusive(1, 1000)
		g.released(g.releaseSent())
		m.exclusive(2, 1001)
	},
	"grants that are answered in another order": func(m *model) {
		first, second := m.acquireSent("x"), m.acquireSent("y")
		second.granted(leaseOf("y", "exclusive", 2, 1100, 100))
		first.granted(leaseOf("x", "exclusive", 1, 1000, 100))
	},
	"readers together": func(m *model) {
		m.shared(1, 1000)
		m.shared(2, 1001)
		m.exclusive(3, 1101)
	},
	"a renewal whose answer was lost": func(m *model) {
		g := m.exclusive(1, 1000)
		g.renewalLost()
		g.renewed(leaseOf("x", "exclusive", 1, 1150, 100))
	},
	"readers release one after the other": func(m *model) {
		first, second := m.shared(1, 1000), m.shared(2, 1000)
		first.released(first.releaseSent())
		second.released(second.releaseSent())
	},
	"a release that is sent twice": func(m *model) {
		g := m.exclusive(1, 1000)
		g.releaseSent()
		m.exclusive(2, 1050)
		g.released(g.releaseSent())
	},
	"a late writer without a newer lease": func(m *model) {
		g := m.exclusive(1, 1000)
		m.applied(g, 1, "k", 1)
		m.applied(g, 2, "k", 2)
	},
	"a write that was sent before a newer grant was answered": func(m *model) {
		g := m.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		a := w.send()
		m.exclusive(2, 1100)
		a.admitted(api.WriteResult{Version: 1})
		w.end()
	},
	"a replay after a newer grant": func(m *model) {
		g := m.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		m.exclusive(2, 1100)
		w.send().admitted(api.WriteResult{Version: 1, Replayed: true})
		w.end()
	},
	"a lost write that is found by a reading": func(m *model) {
		g := m.exclusive(1, 1000)
		w := g.begins(1, "k", value(g, 1))
		w.send().lost("unavailable")
		w.end()
		m.applied(m.exclusive(2, 1100), 1, "other", 2)
		m.reads().listed([]api.RecordInfo{record("k", 1, 1, 1), record("other", 2, 2, 1)})
		m.reads().got("k", got(value(g, 1), 1, 1, 1))
		m.settled(m.reads())
	},
	"a lost write that is not found": func(m *model) {
		g := m.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		w.send().refused("token_stale", false)
		w.end()
		m.applied(m.exclusive(2, 1100), 1, "k", 2)
		m.reads().listed([]api.RecordInfo{record("k", 2, 2, 1)})
	},
	"a reading that was sent before the write was answered": func(m *model) {
		g := m.exclusive(1, 1000)
		r := m.reads()
		m.applied(g, 1, "k", 1)
		r.listed(nil)
		m.reads().listed([]api.RecordInfo{record("k", 1, 1, 1)})
	},
}

func TestCheckerPassesAllowedHistories(t *testing.T) {
	for name, build := range allowedHistories {
		t.Run(name, func(t *testing.T) {
			m := newModel(t)
			build(m)
			m.wantsNothing()
		})
	}
}

// TestWindows goes far beyond what is kept: what was forgotten must not count as a violation.
func TestWindows(t *testing.T) {
	m := newModel(t)
	old := m.exclusive(1, 1000)
	kept := m.applied(old, 1, "kept", 1)
	inDoubt := old.begins(2, "doubt", "")
	inDoubt.send().lost("unavailable")
	inDoubt.end()
	var last *write
	for i := range int64(2 * writesKept) {
		g := m.exclusive(2+i, 2000+100*i)
		last = m.applied(g, 1, "k", 3+i)
	}
	records := []api.RecordInfo{record("kept", 1, 1, 1), record("doubt", 2, 1, 2),
		record("k", last.version, last.token, 1)}
	m.settled(func() *reading { r := m.reads(); r.listed(records); return r }())
	m.reads().got("kept", got(kept.value, 1, 1, 1))
	m.wantsNothing()
	if b := &m.ledger; len(b.writes) > writesKept || len(b.numbers) > writesKept || len(b.order) > orderKept ||
		len(m.grants) > grantsKept {
		t.Errorf("it keeps %d writes, %d numbers, %d versions, %d grants", len(b.writes), len(b.numbers), len(b.order),
			len(m.grants))
	}
	for range 2 * barriersKept {
		m.reads().listed(records)
	}
	if len(m.ledger.barriers) > barriersKept {
		t.Errorf("it keeps %d readings", len(m.ledger.barriers))
	}

	m.reads().listed([]api.RecordInfo{record("k", last.version+1, 1, 2)})
	if kept, _ := m.checker.violations(); len(kept) == 0 || len(kept) > violationsKept {
		t.Errorf("%d violations are kept", len(kept))
	}
	for range 2 * violationsKept {
		m.exclusive(1, 1000)
	}
	if kept, total := m.checker.violations(); len(kept) != violationsKept || total <= violationsKept {
		t.Errorf("%d of %d violations are kept", len(kept), total)
	}
}

func TestPercentilesAreWithinThreePercent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l latencies
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(20*time.Millisecond)).Truncate(time.Microsecond)
		l.add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, p := range []float64{0.01, 0.5, 0.99, 1} {
		exact := float64(all[max(1, int(p*float64(len(all))))-1].Microseconds()) / 1000
		if got := l.percentile(p); got < exact || got > exact*1.04+0.001 {
			t.Errorf("the %g percentile is %g ms, want %g", 100*p, got, exact)
		}
	}
	if got := (&latencies{}).percentile(0.5); got != 0 {
		t.Errorf("of nothing the median is %g", got)
	}
}
