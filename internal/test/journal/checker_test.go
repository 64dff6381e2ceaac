package journal

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// goodHistory returns a history without faults: two grants of a lock, three writes, one of them a transaction.
func goodHistory() (history, state) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	h := history{
		grants: []grant{
			{lock: "a", owner: "x", leaseID: "l4", token: 4, sent: 10, answered: 11},
			{lock: "a", owner: "y", leaseID: "l7", token: 7, sent: 20, answered: 21},
		},
		writes: []write{
			{resource: "a", key: "w/4.1", token: 4, sequence: 1, value: byPut + "one", outcome: acknowledged, sent: 12,
				version: 1},
			{resource: "a", key: "w/4.2", token: 4, sequence: 2, value: byPut + "two", outcome: notApplied, sent: 14},
			{resource: "a", key: "w/4.3", token: 4, sequence: 3, value: byTransaction + "three", outcome: doubtful, sent: 16},
			{resource: "a", key: "w/7.1", token: 7, sequence: 1, value: byPut + "four", outcome: acknowledged, sent: 22,
				version: 3, replayed: true},
		},
	}
	s := state{
		leases: []storedLease{
			{lock: "a", owner: "x", leaseID: "l4", token: 4, grantedAt: at(110), endsAt: at(120)},
			{lock: "a", owner: "y", leaseID: "l7", token: 7, grantedAt: at(120), endsAt: at(130)},
		},
		records: []storedRecord{
			{resource: "a", key: "w/7.1", version: 3, token: 7, sequence: 1, value: byPut + "four", updatedAt: at(122)},
			{resource: "a", key: lastKey, version: 2, token: 4, sequence: 3, value: byTransaction + "three", updatedAt: at(116)},
			{resource: "a", key: "w/4.1", version: 1, token: 4, sequence: 1, value: byPut + "one", updatedAt: at(112)},
			{resource: "a", key: "w/4.3", version: 2, token: 4, sequence: 3, value: byTransaction + "three", updatedAt: at(116)},
			{resource: "a", key: "other/4.3", version: 2, token: 4, sequence: 3, value: byTransaction + "three",
				updatedAt: at(116)},
		},
		fences: map[string]storedFence{"a": {grantedToken: 7, lastToken: 7, lastSequence: 1, lastVersion: 3}},
	}
	return h, s
}

func TestCheckerPassesGoodHistories(t *testing.T) {
	h, s := goodHistory()
	if found := checkHistory(h, s); len(found) > 0 {
		t.Errorf("it finds fault: %q", found)
	}
	if found := checkHistory(history{}, state{}); len(found) > 0 {
		t.Errorf("it finds fault with nothing: %q", found)
	}
}

// spoiled is a good history, spoiled, and what is to be found.
type spoiled struct {
	name  string
	spoil func(*history, *state)
	want  string
}

var badHistories = []spoiled{
	{"a token was granted twice", func(h *history, _ *state) {
		h.grants = append(h.grants, grant{lock: "a", owner: "z", leaseID: "l7", token: 7, sent: 20, answered: 30})
	}, "granted to y and to z"},
	{"tokens fell", func(h *history, _ *state) {
		h.grants[0].sent, h.grants[0].answered = 30, 31
	}, "when 7 had been before"},
	{"a grant was lost", func(_ *history, s *state) {
		s.leases = s.leases[:1]
	}, "the grant of token 7 to y is lost"},
	{"a lease is another's", func(_ *history, s *state) {
		s.leases[1].leaseID = "l8"
	}, "the grant of token 7 to y is lost"},
	{"a fence forgot a grant", func(_ *history, s *state) {
		s.fences["a"] = storedFence{grantedToken: 4, lastToken: 7, lastSequence: 1, lastVersion: 3}
	}, "the fence knows none above 4"},
	{"leases overlap", func(_ *history, s *state) {
		s.leases[0].endsAt = s.leases[1].grantedAt.Add(time.Microsecond)
	}, "the leases of the tokens 4 and 7 overlap"},
	{"the clock and the tokens disagree", func(_ *history, s *state) {
		s.leases[1].grantedAt = s.leases[0].grantedAt.Add(-time.Second)
	}, "token 7 was granted before token 4"},
	{"an acknowledged write was lost", func(_ *history, s *state) {
		s.records = slices.Delete(s.records, 0, 1)
	}, "the acknowledged write w/7.1 is lost"},
	{"all that a name had was lost", func(_ *history, s *state) {
		*s = state{}
	}, "the acknowledged write w/4.1 is lost"},
	{"an acknowledged write was applied again", func(_ *history, s *state) {
		s.records[0].version = 4
	}, "acknowledged with version 3 and has 4"},
	{"a refused write was applied", func(h *history, _ *state) {
		h.writes[2].outcome = notApplied
	}, "the write w/4.3 was refused, and is there"},
	{"a record came from nowhere", func(h *history, _ *state) {
		h.writes = slices.Delete(h.writes, 2, 3)
	}, "no client sent the record w/4.3"},
	{"a record has another value", func(_ *history, s *state) {
		s.records[2].value = byPut
	}, "no client sent the record w/4.1"},
	{"a token that was never granted admitted a write", func(h *history, s *state) {
		h.grants, s.leases = h.grants[1:], s.leases[1:]
	}, "admitted by token 4, which was never granted"},
	{"a doubtful write was applied twice", func(_ *history, s *state) {
		s.records[0].version, s.records[3].version = 4, 3
	}, "has version 3, but is number 2"},
	{"the last write was applied twice", func(_ *history, s *state) {
		s.fences["a"] = storedFence{grantedToken: 7, lastToken: 7, lastSequence: 1, lastVersion: 4}
	}, "the fence counts 4 writes, there are 3"},
	{"an older token was admitted after a newer", func(h *history, s *state) {
		s.records[0].version, s.records[3].version = 2, 3
		h.writes[3].version = 2
	}, "the write 4.3 was admitted after 7.1"},
	{"data and fence were committed apart", func(_ *history, s *state) {
		s.fences["a"] = storedFence{grantedToken: 7, lastToken: 4, lastSequence: 3, lastVersion: 3}
	}, "the last write is 7.1, the fence says 4.3"},
	{"a zombie's write passed", func(h *history, _ *state) {
		h.writes[0].sent = 22
	}, "the write w/4.1 was admitted, sent after token 7 had been granted"},
	{"a zombie's write came late", func(_ *history, s *state) {
		s.records[3].updatedAt = s.leases[1].grantedAt.Add(time.Microsecond)
	}, "the record w/4.3 was stored after token 7 had been granted"},
	{"half of a transaction was lost", func(_ *history, s *state) {
		s.records = slices.Delete(s.records, 4, 5)
	}, "w/4.3 of version 2 is not whole, its other record has version 0"},
	{"half of a transaction is older", func(_ *history, s *state) {
		s.records[4].version = 1
	}, "w/4.3 of version 2 is not whole, its other record has version 1"},
	{"half of a transaction is all there is", func(_ *history, s *state) {
		s.records = slices.Delete(s.records, 3, 4)
	}, "there are 0 transactions, and other records of 1"},
	{"the common record of transactions is older", func(_ *history, s *state) {
		s.records[1].version = 1
	}, "of version 2, the common record says " + byTransaction + "three of version 1"},
}

// treeHistory returns a history without faults of nested subtrees: leases on a (a subtree), a/b (shared) and a/b/c, each
// after the one before, and the records of a/b/c, a row among them.
func treeHistory() (history, state) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	h := history{
		grants: []grant{
			{lock: "a", subtree: true, owner: "x", leaseID: "l4", token: 4, sent: 10, answered: 11},
			{lock: "a/b", subtree: true, owner: "y", leaseID: "l7", token: 7, sent: 20, answered: 21},
			{lock: "a/b", subtree: true, owner: "z", leaseID: "l8", token: 8, sent: 22, answered: 23},
			{lock: "a/b/c", owner: "x", leaseID: "l9", token: 9, sent: 40, answered: 41},
		},
		writes: []write{
			{resource: "a/b/c", key: "w/4.1", token: 4, sequence: 1, value: byPut + "one", outcome: acknowledged, sent: 12,
				version: 1},
			{resource: "a/b/c", key: "w/9.1", token: 9, sequence: 1, value: byPut + "two", outcome: acknowledged, sent: 42},
			{resource: "a/b/c", key: "w/8.1", token: 8, sequence: 1, value: byPut + "three", outcome: notApplied, sent: 24,
				mustFail: "a shared lease"},
		},
	}
	s := state{
		leases: []storedLease{
			{lock: "a", subtree: true, owner: "x", leaseID: "l4", token: 4, grantedAt: at(110), endsAt: at(119)},
			{lock: "a/b", subtree: true, shared: true, owner: "y", leaseID: "l7", token: 7, grantedAt: at(120), endsAt: at(139)},
			{lock: "a/b", subtree: true, shared: true, owner: "z", leaseID: "l8", token: 8, grantedAt: at(120), endsAt: at(130)},
			{lock: "a/b/c", owner: "x", leaseID: "l9", token: 9, grantedAt: at(140), endsAt: at(150)},
		},
		records: []storedRecord{
			{resource: "a/b/c", key: "w/4.1", version: 1, token: 4, sequence: 1, value: byPut + "one", updatedAt: at(112)},
			{resource: "a/b/c", key: "w/9.1", version: 2, token: 9, sequence: 1, value: byPut + "two", updatedAt: at(142)},
		},
		fences: map[string]storedFence{
			"a": {grantedToken: 4}, "a/b": {grantedToken: 8},
			"a/b/c": {grantedToken: 9, lastToken: 9, lastSequence: 1, lastVersion: 2},
		},
	}
	return h, s
}

var badTrees = []spoiled{
	{"a subtree lease does not cover names beside it", func(h *history, s *state) {
		h.grants[0].subtree, s.leases[0].subtree = false, false
	}, "admitted by token 4, which was never granted"},
	{"an older subtree's write passed", func(h *history, _ *state) {
		h.writes[0].sent = 24
	}, "the write w/4.1 was admitted, sent after token 8 had been granted"},
	{"an older subtree's write came late", func(_ *history, s *state) {
		s.records[0].updatedAt = s.leases[1].grantedAt.Add(time.Microsecond)
	}, "the record w/4.1 was stored after token 7 had been granted"},
	{"a lease overlaps the subtree above", func(_ *history, s *state) {
		s.leases[0].endsAt = s.leases[1].grantedAt.Add(time.Microsecond)
	}, "a/b: the leases of the tokens 4 and 7 overlap"},
	{"a lease overlaps the reader of the subtree above that ends last", func(_ *history, s *state) {
		s.leases[1].endsAt = s.leases[3].grantedAt.Add(time.Microsecond)
	}, "a/b/c: the leases of the tokens 7 and 9 overlap"},
	{"tokens fell below a subtree", func(h *history, _ *state) {
		h.grants[3].token = 6
	}, "token 6 was granted to x when 8 had been before"},
	{"a forbidden write was acknowledged", func(h *history, _ *state) {
		h.writes[2].outcome = acknowledged
	}, "the write w/8.1 was admitted, with a shared lease"},
	{"a forbidden write is there", func(h *history, _ *state) {
		h.writes[1].outcome, h.writes[1].mustFail = doubtful, "a released lease"
	}, "the write w/9.1 was admitted, with a released lease"},
}

func TestCheckerFindsBadHistories(t *testing.T) {
	if found := checkHistory(treeHistory()); len(found) > 0 {
		t.Errorf("it finds fault: %q", found)
	}
	for _, of := range []struct {
		good func() (history, state)
		bad  []spoiled
	}{{goodHistory, badHistories}, {treeHistory, badTrees}} {
		for _, bad := range of.bad {
			t.Run(bad.name, func(t *testing.T) {
				h, s := of.good()
				bad.spoil(&h, &s)
				found := checkHistory(h, s)
				if !slices.ContainsFunc(found, func(what string) bool { return strings.Contains(what, bad.want) }) {
					t.Errorf("it does not find %q, but %q", bad.want, found)
				}
			})
		}
	}
}

// TestCheckerExcusesLosses checks that what a loss took back is no violation, unless the new database had answered it,
// and that tokens must rise through a loss.
func TestCheckerExcusesLosses(t *testing.T) {
	lossy := func(spoil func(*history, *state)) []string {
		h, s := goodHistory()
		h.losses = []loss{{from: 20, to: 30}}
		h.grants[1].answered, h.writes[3].answered = 21, 23 // y's
		s.leases, s.records = s.leases[:1], s.records[1:]
		s.fences["a"] = storedFence{grantedToken: 4, lastToken: 4, lastSequence: 3, lastVersion: 2}
		spoil(&h, &s)
		return checkHistory(h, s)
	}
	if found := lossy(func(*history, *state) {}); len(found) > 0 {
		t.Errorf("it finds fault with a loss: %q", found)
	}
	if found := lossy(func(h *history, _ *state) { h.writes[0].sent = 22 }); len(found) > 0 {
		t.Errorf("it finds fault with a write of x, where the grant to y is lost: %q", found)
	}
	reused := storedLease{lock: "a", owner: "z", leaseID: "l9", token: 7, endsAt: time.Unix(130, 0)}
	reused.grantedAt = reused.endsAt.Add(-time.Second)
	if found := lossy(func(h *history, s *state) {
		h.writes[0].sent = 22
		s.leases = append(s.leases, reused)
		s.fences["a"] = storedFence{grantedToken: 7, lastToken: 4, lastSequence: 3, lastVersion: 2}
	}); len(found) > 0 {
		t.Errorf("it finds fault with the token of a lost grant, granted again to an acquire that was refused: %q", found)
	}
	for want, spoil := range map[string]func(*history, *state){
		"the grant of token 7 to y is lost":    func(h *history, _ *state) { h.grants[1].answered = 31 },
		"the acknowledged write w/7.1 is lost": func(h *history, _ *state) { h.writes[3].answered = 31 },
		"the acknowledged write w/4.1 is lost": func(_ *history, s *state) { s.records = slices.Delete(s.records, 1, 2) },
		"was granted to z when 7 had been before": func(h *history, _ *state) {
			h.grants = append(h.grants, grant{lock: "a", owner: "z", leaseID: "l5", token: 5, sent: 40, answered: 41})
		},
	} {
		found := lossy(spoil)
		if !slices.ContainsFunc(found, func(what string) bool { return strings.Contains(what, want) }) {
			t.Errorf("it does not find %q, but %q", want, found)
		}
	}
}

// A late acknowledgement, and a replay after a newer grant, are as they should be.
func TestCheckerPassesUnusualHistories(t *testing.T) {
	h, s := goodHistory()
	h.writes[0].sent, h.writes[0].replayed = 22, true
	h.writes[2].outcome, h.writes[2].version = acknowledged, 2
	h.writes = append(h.writes, write{resource: "a", key: "w/7.2", token: 7, sequence: 2, value: byPut + "five",
		outcome: doubtful, sent: 23})
	if found := checkHistory(h, s); len(found) > 0 {
		t.Errorf("it finds fault: %q", found)
	}
}
