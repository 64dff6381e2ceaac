package load

import (
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// badStories are what must be found, and how it is told. Each breaks one thing.
var badStories = []struct {
	name, property, words string
	tell                  func(*group)
}{
	{"two holders", oneHolder, "token 2 (exclusive) was granted while the lease of token 1 (exclusive) was live", func(s *group) {
		s.exclusive(1, 1000)
		s.exclusive(2, 1099)
	}},
	{"two holders, the later is answered first", oneHolder, "token 2 (exclusive) was granted while the lease of token 1", func(s *group) {
		first, second := s.asked("x"), s.asked("y")
		second.granted(leaseOf("y", "exclusive", 2, 1050, 100))
		first.granted(leaseOf("x", "exclusive", 1, 1000, 100))
	}},
	{"two holders in one millisecond", oneHolder, "was live", func(s *group) {
		s.exclusive(1, 1000)
		s.exclusive(2, 1000)
	}},
	{"a reader beside a writer", oneHolder, "token 2 (shared) was granted while the lease of token 1 (exclusive)", func(s *group) {
		s.exclusive(1, 1000)
		s.shared(2, 1001)
	}},
	{"a writer beside a reader", oneHolder, "token 2 (exclusive) was granted while the lease of token 1 (shared)", func(s *group) {
		s.shared(1, 1000)
		s.exclusive(2, 1001)
	}},
	{"two holders, which a renewal shows", oneHolder, "token 2", func(s *group) {
		g := s.exclusive(1, 1000)
		s.exclusive(2, 1120).releaseSent()
		g.renewalLost()
		g.renewed(leaseOf("x", "exclusive", 1, 1130, 100))
	}},

	{"tokens fall", tokensRise, "token 4 was granted to who asked after token 5", func(s *group) {
		s.exclusive(5, 1000).releaseSent()
		s.asked("y").granted(leaseOf("y", "exclusive", 4, 1100, 100))
	}},
	{"tokens fall by the database's clock", tokensRise, "token 5 was granted before token 4", func(s *group) {
		first, second := s.asked("x"), s.asked("y")
		first.granted(leaseOf("x", "exclusive", 5, 1000, 100))
		second.granted(leaseOf("y", "exclusive", 4, 1100, 100))
	}},
	{"a token is granted twice", tokensRise, "token 5 was granted twice", func(s *group) {
		first, second := s.asked("x"), s.asked("y")
		first.granted(leaseOf("x", "exclusive", 5, 1000, 100))
		second.granted(leaseOf("y", "exclusive", 5, 1100, 100))
	}},

	{"a zombie's write passes", oldShutOut, "the write 1.1 was admitted, sent after token 2 had been granted", func(s *group) {
		g := s.exclusive(1, 1000)
		s.exclusive(2, 1100)
		s.applied(g, 1, "k", 1)
	}},
	{"a zombie's write passes, and only its replay is heard of", oldShutOut, "the write 1.1 was applied, sent after token 2", func(s *group) {
		g := s.exclusive(1, 1000)
		s.exclusive(2, 1100)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		w.send().admitted(api.WriteResult{Version: 1, Replayed: true})
		w.end()
	}},
	{"a reader writes", oldShutOut, "under a shared lease", func(s *group) {
		s.applied(s.shared(1, 1000), 1, "k", 1)
	}},
	{"an old write in flight is applied after a newer one", oldShutOut, "the write 1.1 (version 2) was applied after 2.1 (version 1)", func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		a := w.send()
		s.applied(s.exclusive(2, 1100), 1, "k", 1)
		a.admitted(api.WriteResult{Version: 2})
		w.end()
	}},
	{"an old write in flight is applied after the grant, and the new holder has not written", oldShutOut,
		"the write 1.2 got version 2, when token 2 had been granted and the newest version was 1", func(s *group) {
			g := s.exclusive(1, 1000)
			s.applied(g, 1, "k", 1)
			w := g.begins(2, "k", "")
			a := w.send()
			s.exclusive(2, 1100)
			s.reads().listed([]api.RecordInfo{record("k", 1, 1, 1)})
			a.admitted(api.WriteResult{Version: 2})
			w.end()
		}},
	{"an old write of no answer is found after the grant", oldShutOut, "the write 1.1 got version 1, when token 2", func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		w.end()
		s.exclusive(2, 1100)
		s.reads().listed(nil)
		s.reads().listed([]api.RecordInfo{record("k", 1, 1, 1)})
	}},

	{"a refused write is there", nothingElse, "the write 1.1 was refused, and is there", func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		w.send().lost("unavailable")
		w.send().refused("token_stale", true)
		w.end()
		s.applied(g, 2, "other", 1)
		s.reads().listed([]api.RecordInfo{record("other", 1, 1, 2), record("k", 1, 1, 1)})
	}},
	{"a write that nobody sent is there", nothingElse, "of the write 1.7, which nobody sent", func(s *group) {
		g := s.exclusive(1, 1000)
		s.applied(g, 1, "k", 1)
		s.reads().listed([]api.RecordInfo{record("k", 1, 1, 1), record("other", 1, 1, 7)})
	}},

	{"an expired lease is renewed", holdersAlone, "after it had expired", func(s *group) {
		s.exclusive(1, 1000).renewed(leaseOf("x", "exclusive", 1, 1101, 100))
	}},
	{"a lease that was replaced is released", holdersAlone, "was released, after token 2 had replaced it", func(s *group) {
		g := s.exclusive(1, 1000)
		s.exclusive(2, 1100)
		g.released(g.releaseSent())
	}},
}

var lostStories = []struct {
	name, property, words string
	tell                  func(*group)
}{
	{"an acknowledged write is gone from the list", nothingLost, "the acknowledged write 1.1 of k, version 1, is lost", func(s *group) {
		s.applied(s.exclusive(1, 1000), 1, "k", 1)
		s.reads().listed(nil)
	}},
	{"an older record is there", nothingLost, "the acknowledged write 1.2 of k, version 2, is lost", func(s *group) {
		g := s.exclusive(1, 1000)
		s.applied(g, 1, "k", 1)
		s.applied(g, 2, "k", 2)
		s.reads().got("k", got(value(g, 1), 1, 1, 1))
	}},
	{"an acknowledged record is not there", nothingLost, "is lost", func(s *group) {
		s.applied(s.exclusive(1, 1000), 1, "k", 1)
		s.reads().missed("k")
	}},

	{"both attempts apply a write", exactlyOnce, "the write 1.1 was applied by two of its attempts", func(s *group) {
		w := s.exclusive(1, 1000).begins(1, "k", "")
		a, b := w.send(), w.send()
		a.admitted(api.WriteResult{Version: 1})
		b.admitted(api.WriteResult{Version: 1})
		w.end()
	}},
	{"a replay has another version", exactlyOnce, "with version 1 and with version 2", func(s *group) {
		w := s.exclusive(1, 1000).begins(1, "k", "")
		w.send().admitted(api.WriteResult{Version: 1})
		w.send().admitted(api.WriteResult{Version: 2, Replayed: true})
		w.end()
	}},
	{"a lost attempt was applied, and its repetition again", exactlyOnce, "version 2 is out, but only 1 writes were acknowledged", func(s *group) {
		w := s.exclusive(1, 1000).begins(1, "k", "")
		w.send().lost("unavailable")
		w.send().admitted(api.WriteResult{Version: 2})
		w.end()
	}},
	{"the last write is applied again after its answer", exactlyOnce, "was acknowledged with version 1, and has version 2", func(s *group) {
		s.applied(s.exclusive(1, 1000), 1, "k", 1)
		s.reads().listed([]api.RecordInfo{record("k", 2, 1, 1)})
	}},
	{"two writes have one version", exactlyOnce, "the writes 1.1 and 1.2 have one version, 1", func(s *group) {
		g := s.exclusive(1, 1000)
		s.applied(g, 1, "k", 1)
		s.applied(g, 2, "k", 1)
	}},
	{"fewer versions than writes", exactlyOnce, "2 writes were acknowledged, and only 1 versions are out", func(s *group) {
		s.ledger.applied, s.ledger.versionMax = 2, 1
		s.settled(s.reads())
	}},
	{"writes of one holder are applied in another order", exactlyOnce, "the write 1.1 (version 2) was applied after 1.2 (version 1)", func(s *group) {
		g := s.exclusive(1, 1000)
		w := g.begins(1, "k", "")
		a := w.send()
		s.applied(g, 2, "k", 1)
		a.admitted(api.WriteResult{Version: 2})
		w.end()
	}},
	{"a record has another value", exactlyOnce, "the write 1.1 of k was sent with the value", func(s *group) {
		s.applied(s.exclusive(1, 1000), 1, "k", 1)
		s.reads().got("k", got("other", 1, 1, 1))
	}},
	{"a write stands under another key", exactlyOnce, "the write 1.1 of k was sent with the value", func(s *group) {
		s.applied(s.exclusive(1, 1000), 1, "k", 1)
		s.reads().listed([]api.RecordInfo{record("k", 1, 1, 1), record("other", 1, 1, 1)})
	}},
}

func TestWhatIsFound(t *testing.T) {
	for _, bad := range append(badStories[:len(badStories):len(badStories)], lostStories...) {
		t.Run(bad.name, func(t *testing.T) {
			s := newStory(t)
			bad.tell(s)
			s.wants(bad.property, bad.words)
		})
	}
}
