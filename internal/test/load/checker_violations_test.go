package load

import (
	"testing"

	"github.com/fencegate/fencegate/lockclient/api"
)

// badHistories are what must be found, with the text of the violation. Each breaks one thing.
var badHistories = []struct {
	name, property, words string
	build                 func(*model)
}{
	{"two holders", oneHolder, "token 2 (exclusive) was granted while the lease of token 1 (exclusive) was live",
		func(m *model) {
			m.exclusive(1, 1000)
			m.exclusive(2, 1099)
		}},
	{"two holders, the later is answered first", oneHolder,
		"token 2 (exclusive) was granted while the lease of token 1", func(m *model) {
			first, second := m.acquireSent("x"), m.acquireSent("y")
			second.granted(leaseOf("y", "exclusive", 2, 1050, 100))
			first.granted(leaseOf("x", "exclusive", 1, 1000, 100))
		}},
	{"two holders in one millisecond", oneHolder, "was live", func(m *model) {
		m.exclusive(1, 1000)
		m.exclusive(2, 1000)
	}},
	{"a reader beside a writer", oneHolder, "token 2 (shared) was granted while the lease of token 1 (exclusive)",
		func(m *model) {
			m.exclusive(1, 1000)
			m.shared(2, 1001)
		}},
	{"a writer beside a reader", oneHolder, "token 2 (exclusive) was granted while the lease of token 1 (shared)",
		func(m *model) {
			m.shared(1, 1000)
			m.exclusive(2, 1001)
		}},
	{"two holders, which a renewal shows", oneHolder, "token 2", func(m *model) {
		g := m.exclusive(1, 1000)
		m.exclusive(2, 1120).releaseSent()
		g.renewalLost()
		g.renewed(leaseOf("x", "exclusive", 1, 1130, 100))
	}},

	{"tokens fall", tokensRise, "token 4 was granted to an acquire that was sent after token 5", func(m *model) {
		m.exclusive(5, 1000).releaseSent()
		m.acquireSent("y").granted(leaseOf("y", "exclusive", 4, 1100, 100))
	}},
	{"tokens fall by the database's clock", tokensRise, "token 5 was granted before token 4", func(m *model) {
		first, second := m.acquireSent("x"), m.acquireSent("y")
		first.granted(leaseOf("x", "exclusive", 5, 1000, 100))
		second.granted(leaseOf("y", "exclusive", 4, 1100, 100))
	}},
	{"a token is granted twice", tokensRise, "token 5 was granted twice", func(m *model) {
		first, second := m.acquireSent("x"), m.acquireSent("y")
		first.granted(leaseOf("x", "exclusive", 5, 1000, 100))
		second.granted(leaseOf("y", "exclusive", 5, 1100, 100))
	}},

	{"a zombie's write passes", oldShutOut, "the write 1.1 was admitted, sent after token 2 had been granted",
		func(m *model) {
			g := m.exclusive(1, 1000)
			m.exclusive(2, 1100)
			m.applied(g, 1, "k", 1)
		}},
	{"a zombie's write passes, and only its replay is answered", oldShutOut,
		"the write 1.1 was applied, sent after token 2", func(m *model) {
			g := m.exclusive(1, 1000)
			m.exclusive(2, 1100)
			w := g.begins(1, "k", "")
			w.send().lost("unavailable")
			w.send().admitted(api.WriteResult{Version: 1, Replayed: true})
			w.end()
		}},
	{"a reader writes", oldShutOut, "under a shared lease", func(m *model) {
		m.applied(m.shared(1, 1000), 1, "k", 1)
	}},
	{"an old write in flight is applied after a newer one", oldShutOut,
		"the write 1.1 (version 2) was applied after 2.1 (version 1)", func(m *model) {
			g := m.exclusive(1, 1000)
			w := g.begins(1, "k", "")
			a := w.send()
			m.applied(m.exclusive(2, 1100), 1, "k", 1)
			a.admitted(api.WriteResult{Version: 2})
			w.end()
		}},
	{"an old write in flight is applied after the grant, and the new holder has not written", oldShutOut,
		"the write 1.2 got version 2, when token 2 had been granted and the newest version was 1", func(m *model) {
			g := m.exclusive(1, 1000)
			m.applied(g, 1, "k", 1)
			w := g.begins(2, "k", "")
			a := w.send()
			m.exclusive(2, 1100)
			m.reads().listed([]api.RecordInfo{record("k", 1, 1, 1)})
			a.admitted(api.WriteResult{Version: 2})
			w.end()
		}},
	{"an old write of no answer is found after the grant", oldShutOut,
		"the write 1.1 got version 1, when token 2", func(m *model) {
			g := m.exclusive(1, 1000)
			w := g.begins(1, "k", "")
			w.send().lost("unavailable")
			w.end()
			m.exclusive(2, 1100)
			m.reads().listed(nil)
			m.reads().listed([]api.RecordInfo{record("k", 1, 1, 1)})
		}},

	{"a refused write is there", nothingElse, "the write 1.1 was refused, and is there", func(m *model) {
		g := m.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		w.send().refused("token_stale", true)
		w.end()
		m.applied(g, 2, "other", 1)
		m.reads().listed([]api.RecordInfo{record("other", 1, 1, 2), record("k", 1, 1, 1)})
	}},
	{"a write that no client sent is there", nothingElse, "of the write 1.7, which no client sent", func(m *model) {
		g := m.exclusive(1, 1000)
		m.applied(g, 1, "k", 1)
		m.reads().listed([]api.RecordInfo{record("k", 1, 1, 1), record("other", 1, 1, 7)})
	}},

	{"an expired lease is renewed", holdersAlone, "after it had expired", func(m *model) {
		m.exclusive(1, 1000).renewed(leaseOf("x", "exclusive", 1, 1101, 100))
	}},
	{"a lease that was replaced is released", holdersAlone, "was released, after token 2 had replaced it", func(m *model) {
		g := m.exclusive(1, 1000)
		m.exclusive(2, 1100)
		g.released(g.releaseSent())
	}},

	{"an acknowledged write is gone from the list", nothingLost,
		"the acknowledged write 1.1 of k, version 1, is lost", func(m *model) {
			m.applied(m.exclusive(1, 1000), 1, "k", 1)
			m.reads().listed(nil)
		}},
	{"an older record is there", nothingLost, "the acknowledged write 1.2 of k, version 2, is lost", func(m *model) {
		g := m.exclusive(1, 1000)
		m.applied(g, 1, "k", 1)
		m.applied(g, 2, "k", 2)
		m.reads().got("k", got(value(g, 1), 1, 1, 1))
	}},
	{"an acknowledged record is not there", nothingLost, "is lost", func(m *model) {
		m.applied(m.exclusive(1, 1000), 1, "k", 1)
		m.reads().missed("k")
	}},

	{"both attempts apply a write", exactlyOnce, "the write 1.1 was applied by two of its attempts", func(m *model) {
		w := m.exclusive(1, 1000).begins(1, "k", "")
		a, b := w.send(), w.send()
		a.admitted(api.WriteResult{Version: 1})
		b.admitted(api.WriteResult{Version: 1})
		w.end()
	}},
	{"a replay has another version", exactlyOnce, "with version 1 and with version 2", func(m *model) {
		w := m.exclusive(1, 1000).begins(1, "k", "")
		w.send().admitted(api.WriteResult{Version: 1})
		w.send().admitted(api.WriteResult{Version: 2, Replayed: true})
		w.end()
	}},
	{"a lost attempt was applied, and its repetition again", exactlyOnce,
		"version 2 is out, but only 1 writes were acknowledged", func(m *model) {
			w := m.exclusive(1, 1000).begins(1, "k", "")
			w.send().lost("unavailable")
			w.send().admitted(api.WriteResult{Version: 2})
			w.end()
		}},
	{"the last write is applied again after its answer", exactlyOnce,
		"was acknowledged with version 1, and has version 2", func(m *model) {
			m.applied(m.exclusive(1, 1000), 1, "k", 1)
			m.reads().listed([]api.RecordInfo{record("k", 2, 1, 1)})
		}},
	{"two writes have one version", exactlyOnce, "the writes 1.1 and 1.2 have one version, 1", func(m *model) {
		g := m.exclusive(1, 1000)
		m.applied(g, 1, "k", 1)
		m.applied(g, 2, "k", 1)
	}},
	{"fewer versions than writes", exactlyOnce, "2 writes were acknowledged, and only 1 versions are out", func(m *model) {
		m.ledger.applied, m.ledger.versionMax = 2, 1
		m.settled(m.reads())
	}},
	{"writes of one holder are applied in another order", exactlyOnce,
		"the write 1.1 (version 2) was applied after 1.2 (version 1)", func(m *model) {
			g := m.exclusive(1, 1000)
			w := g.begins(1, "k", "")
			a := w.send()
			m.applied(g, 2, "k", 1)
			a.admitted(api.WriteResult{Version: 2})
			w.end()
		}},
	{"a record has another value", exactlyOnce, "the write 1.1 of k was sent with the value", func(m *model) {
		m.applied(m.exclusive(1, 1000), 1, "k", 1)
		m.reads().got("k", got("other", 1, 1, 1))
	}},
	{"a write is found under another key", exactlyOnce, "the write 1.1 of k was sent with the value", func(m *model) {
		m.applied(m.exclusive(1, 1000), 1, "k", 1)
		m.reads().listed([]api.RecordInfo{record("k", 1, 1, 1), record("other", 1, 1, 1)})
	}},
}

func TestCheckerFindsBadHistories(t *testing.T) {
	for _, bad := range badHistories {
		t.Run(bad.name, func(t *testing.T) {
			m := newModel(t)
			bad.build(m)
			m.wants(bad.property, bad.words)
		})
	}
}
