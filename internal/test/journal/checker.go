package journal

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"
)

// state is what the database has when the load has ended and every fault is healed. Times are by its clock.
type state struct {
	leases  []storedLease
	records []storedRecord
	fences  map[string]storedFence
}

type storedLease struct {
	lock, owner, leaseID string
	token                int64
	shared, subtree      bool
	grantedAt, endsAt    time.Time
}

func (s storedLease) String() string {
	if s.token == 0 {
		return "no lease"
	}
	mode, scope := "exclusive", "node"
	if s.shared {
		mode = "shared"
	}
	if s.subtree {
		scope = "subtree"
	}
	return fmt.Sprintf("token %d on %s (%s, %s) is lease %s of %s, from %s to %s", s.token, s.lock, mode, scope, s.leaseID,
		s.owner, s.grantedAt.Format(clockFormat), s.endsAt.Format(clockFormat))
}

// clockFormat is that of the times in findings, by the database's clock.
const clockFormat = "15:04:05.000000"

type storedRecord struct {
	resource, key            string
	version, token, sequence int64
	value                    string
	updatedAt                time.Time
}

type storedFence struct{ grantedToken, lastToken, lastSequence, lastVersion int64 }

// A transaction puts three records of one value: one of its own as any write does, one more of its own, and the one
// that all transactions put.
const (
	ownPrefix   = "w/"
	otherPrefix = "other/"
	lastKey     = "last"
)

// otherKey is the key of the second record of a transaction.
func otherKey(ownKey string) string { return otherPrefix + strings.TrimPrefix(ownKey, ownPrefix) }

// What values, which are JSON, begin with, by how they came.
const (
	byPut         = `"put `
	byTransaction = `"transaction `
)

// checkHistory holds what clients saw against what the database has, and returns what contradicts the contract. Nothing
// in either may be missing: of each name, h has every write that was sent, and s every lease and record that there ever
// was, but for those that a loss of h took back.
func checkHistory(h history, s state) []string {
	var found findings
	for _, l := range split(h, s) {
		l.tokensRise(&found)
		l.grantsAreKept(&found)
		l.leasesAreApart(&found)
		l.writesAreKept(&found)
		l.forbiddenWritesFail(&found)
		l.recordsWereSent(&found)
		l.writesCountOnce(&found)
		l.versionsFollowTokens(&found)
		l.olderTokensAreShutOut(&found)
		l.transactionsAreWhole(&found)
	}
	return found
}

type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// lockHistory is all that happened to one lock and its resource. Its grants and leases are those on the name, and those
// on the subtrees that it is in: they may write to the resource, too, and conflict.
type lockHistory struct {
	name    string
	history *history
	grants  []grant
	writes  []write
	leases  []storedLease  // by token
	records []storedRecord // by version: one of each write
	others  map[string]storedRecord
	last    storedRecord
	fence   storedFence
}

func split(h history, s state) []*lockHistory {
	histories := map[string]*lockHistory{}
	of := func(name string) *lockHistory {
		if histories[name] == nil {
			histories[name] = &lockHistory{name: name, history: &h, fence: s.fences[name], others: map[string]storedRecord{}}
		}
		return histories[name]
	}
	for _, g := range h.grants {
		of(g.lock).grants = append(of(g.lock).grants, g)
	}
	for _, w := range h.writes {
		of(w.resource).writes = append(of(w.resource).writes, w)
	}
	for _, lease := range s.leases {
		of(lease.lock).leases = append(of(lease.lock).leases, lease)
	}
	for _, record := range s.records {
		switch l := of(record.resource); {
		case record.key == lastKey:
			l.last = record
		case strings.HasPrefix(record.key, otherPrefix):
			l.others[record.key] = record
		default:
			l.records = append(l.records, record)
		}
	}
	for _, l := range histories {
		for above := range ancestors(l.name) {
			if upper := histories[above]; upper != nil {
				l.grants = slices.AppendSeq(l.grants, those(upper.grants, func(g grant) bool { return g.lock == above && g.subtree }))
				l.leases = slices.AppendSeq(l.leases,
					those(upper.leases, func(s storedLease) bool { return s.lock == above && s.subtree }))
			}
		}
		slices.SortFunc(l.leases, func(a, b storedLease) int { return cmp.Compare(a.token, b.token) })
		slices.SortFunc(l.records, func(a, b storedRecord) int { return cmp.Compare(a.version, b.version) })
	}
	return slices.SortedFunc(maps.Values(histories), func(a, b *lockHistory) int { return cmp.Compare(a.name, b.name) })
}

// ancestors yields the names above a name.
func ancestors(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := strings.LastIndexByte(name, '/'); at > 0 && yield(name[:at]); {
			at = strings.LastIndexByte(name[:at], '/')
		}
	}
}

func those[T any](all []T, are func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, one := range all {
			if are(one) && !yield(one) {
				return
			}
		}
	}
}

// tokensRise is P2: an acquire that was sent after another was answered has the greater token, and no token is granted
// twice.
func (l *lockHistory) tokensRise(found *findings) {
	owners := map[int64]string{}
	newest := newestKnown(l.grants)
	for _, g := range l.grants {
		if first, twice := owners[g.token]; twice {
			found.add("%s: token %d was granted to %s and to %s", l.name, g.token, first, g.owner)
		}
		owners[g.token] = g.owner
		if before := newest(g.sent); before >= g.token {
			found.add("%s: token %d was granted to %s when %d had been before", l.name, g.token, g.owner, before)
		}
	}
}

// newestKnown returns a function that returns the greatest token that some client knew at a time.
func newestKnown(grants []grant) func(time.Duration) int64 {
	grants = slices.SortedFunc(slices.Values(grants),
		func(a, b grant) int { return cmp.Compare(a.answered, b.answered) })
	newest := make([]int64, len(grants)+1)
	for i, g := range grants {
		newest[i+1] = max(newest[i], g.token)
	}
	return func(at time.Duration) int64 {
		return newest[sort.Search(len(grants), func(i int) bool { return grants[i].answered >= at })]
	}
}

// grantsAreKept is P9 for grants.
func (l *lockHistory) grantsAreKept(found *findings) {
	stored := l.storedLeases()
	for _, g := range l.grants {
		if g.lock != l.name || l.isLost(g, stored) {
			continue
		}
		if lease, kept := stored[g.token]; !kept || lease.leaseID != g.leaseID || lease.owner != g.owner {
			found.add("%s: the grant of token %d to %s is lost: it was lease %s, and the database has %s", l.name, g.token,
				g.owner, g.leaseID, lease)
		}
		if g.token > l.fence.grantedToken {
			found.add("%s: token %d was granted, the fence knows none above %d", l.name, g.token, l.fence.grantedToken)
		}
	}
}

// isLost reports whether a loss took the grant back, by design. A database whose tokens were set back may have granted
// the token again since, to an acquire that was refused.
func (l *lockHistory) isLost(g grant, stored map[int64]storedLease) bool {
	return stored[g.token].leaseID != g.leaseID && l.history.mayBeLost(g.answered)
}

func (l *lockHistory) storedLeases() map[int64]storedLease {
	stored := map[int64]storedLease{}
	for _, lease := range l.leases {
		stored[lease.token] = lease
	}
	return stored
}

// leasesAreApart is P1, and P2 in the order of the database's clock. Shared leases may overlap each other.
func (l *lockHistory) leasesAreApart(found *findings) {
	var writer, reader storedLease // those of lower tokens that end last
	for _, lease := range l.leases {
		for _, before := range []storedLease{writer, reader} {
			switch {
			case before.token == 0 || before.shared && lease.shared:
			case !lease.grantedAt.After(before.grantedAt):
				found.add("%s: token %d was granted before token %d: %s; %s", l.name, lease.token, before.token, lease, before)
			case lease.grantedAt.Before(before.endsAt):
				found.add("%s: the leases of the tokens %d and %d overlap: %s; %s", l.name, before.token, lease.token, before,
					lease)
			}
		}
		if last := map[bool]*storedLease{true: &reader, false: &writer}[lease.shared]; lease.endsAt.After(last.endsAt) {
			*last = lease
		}
	}
}

// writesAreKept is P4 and P9 for writes, and P12.
func (l *lockHistory) writesAreKept(found *findings) {
	stored := map[string]storedRecord{}
	for _, record := range l.records {
		stored[record.key] = record
	}
	for _, w := range l.writes {
		record, kept := stored[w.key]
		switch {
		case w.outcome == acknowledged && l.history.mayBeLost(w.answered):
		case w.outcome == acknowledged && !kept:
			found.add("%s: the acknowledged write %s is lost", l.name, w.key)
		case w.outcome == acknowledged && w.version != 0 && record.version != w.version:
			found.add("%s: the write %s was acknowledged with version %d and has %d", l.name, w.key, w.version, record.version)
		case w.outcome == notApplied && kept:
			found.add("%s: the write %s was refused, and is there", l.name, w.key)
		}
	}
}

// forbiddenWritesFail is P5, P11 and the steps of the rule that no history can make pass: a token that was never granted, a
// lease_id that is not the lease's, a lease that is shared or was released, a row without a token.
func (l *lockHistory) forbiddenWritesFail(found *findings) {
	stored := map[string]bool{}
	for _, record := range l.records {
		stored[record.key] = true
	}
	for _, w := range l.writes {
		if w.mustFail != "" && (w.outcome == acknowledged || stored[w.key]) {
			found.add("%s: the write %s was admitted, with %s", l.name, w.key, w.mustFail)
		}
	}
}

// recordsWereSent is P5: what is stored was sent, under a token that was granted.
func (l *lockHistory) recordsWereSent(found *findings) {
	sent := map[string]write{}
	for _, w := range l.writes {
		sent[w.key] = w
	}
	leases := l.storedLeases()
	for _, record := range l.records {
		w, known := sent[record.key]
		if !known || w.value != record.value || w.token != record.token || w.sequence != record.sequence {
			found.add("%s: no client sent the record %s as it is", l.name, record.key)
		}
		if _, granted := leases[record.token]; !granted {
			found.add("%s: the record %s was admitted by token %d, which was never granted", l.name, record.key, record.token)
		}
	}
}

// writesCountOnce is P10: each write takes one version and has one key, so that one which is lost or applied again
// leaves a hole.
func (l *lockHistory) writesCountOnce(found *findings) {
	for i, record := range l.records {
		if record.version != int64(i)+1 {
			found.add("%s: the record %s has version %d, but is number %d", l.name, record.key, record.version, i+1)
			break // all that follow are beside their numbers too
		}
	}
	if count := int64(len(l.records)); l.fence.lastVersion != count {
		found.add("%s: the fence counts %d writes, there are %d", l.name, l.fence.lastVersion, count)
	}
}

// versionsFollowTokens is the rule's step 4: writes were admitted in the order of their tokens and sequences.
func (l *lockHistory) versionsFollowTokens(found *findings) {
	last := storedRecord{}
	for _, record := range l.records {
		if record.token < last.token || record.token == last.token && record.sequence <= last.sequence {
			found.add("%s: the write %d.%d was admitted after %d.%d", l.name, record.token, record.sequence, last.token,
				last.sequence)
		}
		last = record
	}
	if l.fence.lastToken != last.token || l.fence.lastSequence != last.sequence {
		found.add("%s: the last write is %d.%d, the fence says %d.%d", l.name, last.token, last.sequence, l.fence.lastToken,
			l.fence.lastSequence)
	}
}

// olderTokensAreShutOut is P3, by the clients' clock and by the database's.
func (l *lockHistory) olderTokensAreShutOut(found *findings) {
	stored := l.storedLeases()
	newest := newestKnown(slices.DeleteFunc(slices.Clone(l.grants), func(g grant) bool {
		return l.isLost(g, stored)
	}))
	for _, w := range l.writes {
		if known := newest(w.sent); w.outcome == acknowledged && !w.replayed && w.token < known {
			found.add("%s: the write %s was admitted, sent after token %d had been granted", l.name, w.key, known)
		}
	}
	for _, record := range l.records {
		next := sort.Search(len(l.leases), func(i int) bool { return l.leases[i].token > record.token })
		if next < len(l.leases) && record.updatedAt.After(l.leases[next].grantedAt) {
			found.add("%s: the record %s was stored after token %d had been granted, at %s: %s", l.name, record.key,
				l.leases[next].token, record.updatedAt.Format(clockFormat), l.leases[next])
		}
	}
}

// transactionsAreWhole is P4 for a change of several records: every record of a transaction is there, and the shared
// record is the last transaction's.
func (l *lockHistory) transactionsAreWhole(found *findings) {
	last := storedRecord{}
	count := 0
	for _, record := range l.records {
		if !strings.HasPrefix(record.value, byTransaction) {
			continue
		}
		last = record
		count++
		if other := l.others[otherKey(record.key)]; other.version != record.version || other.value != record.value {
			found.add("%s: the transaction %s of version %d is not whole, its other record has version %d", l.name, record.key,
				record.version, other.version)
		}
	}
	if count != len(l.others) {
		found.add("%s: there are %d transactions, and other records of %d", l.name, count, len(l.others))
	}
	if l.last.version != last.version || l.last.value != last.value {
		found.add("%s: the last transaction is %s of version %d, the common record says %s of version %d",
			l.name, last.value, last.version, l.last.value, l.last.version)
	}
}
