package load

import (
	"fmt"
	"slices"
)

const (
	// writesKept is how many writes of a name are remembered: what a record that is read is compared with.
	writesKept = 512
	// orderKept is how many of the applied are compared with a new one.
	orderKept = 256
	// barriersKept is how many readings are.
	barriersKept = 16
)

// ledger is what is known of the writes to one resource.
type ledger struct {
	// writes are the last writesKept, in the order of their beginnings.
	writes  []*write
	numbers map[number]*write
	// Of what was forgotten: the greatest version that was acknowledged, and the greatest token of a write in doubt.
	forgottenVersion, forgottenToken int64

	// order is the applied, by version; those below the first are forgotten.
	order []*write
	// newest is the applied write of each key with the greatest version.
	newest map[string]*write

	barriers []barrier

	// underWay have begun and not ended, doubtful have ended; of neither is known that they were applied.
	underWay, doubtful int64
	applied            int64
	versionMax         int64
	// excess is how many versions too many were reported.
	excess int64
}

// barrier is a reading that began after token had been granted: every write with a lower token has a version of at most this.
type barrier struct {
	known   *grant
	reading *reading
	version int64
}

func newLedger() ledger { return ledger{numbers: map[number]*write{}, newest: map[string]*write{}} }

func (b *ledger) begin(w *write) {
	b.underWay++
	b.writes = append(b.writes, w)
	b.numbers[w.number] = w
	if len(b.writes) <= writesKept {
		return
	}
	old := b.writes[0]
	b.writes = b.writes[1:]
	delete(b.numbers, old.number)
	b.forgottenVersion = max(b.forgottenVersion, old.version)
	if !old.ended || old.doubtful() {
		b.forgottenToken = max(b.forgottenToken, old.token)
	}
}

func (b *ledger) end(w *write) {
	if w.version != 0 {
		return
	}
	b.underWay--
	if w.doubtful() {
		b.doubtful++
	}
}

// learn is told which version a write was applied with, by an acknowledgement or by a reading.
func (l *lockHistory) learn(w *write, version int64, by proof) {
	b := &l.ledger
	switch {
	case !w.ended:
		b.underWay--
	case w.doubtful():
		b.doubtful--
	}
	w.version = version
	b.applied++
	b.versionMax = max(b.versionMax, version)
	if newest := b.newest[w.key]; newest == nil || newest.version < version {
		b.newest[w.key] = w
	}
	for _, barrier := range b.barriers {
		if w.token < barrier.known.lease.FencingToken && version > barrier.version {
			l.accuse(oldShutOut, fmt.Sprintf("the write %s got version %d, when token %d had been granted and the newest version was %d",
				w.number, version, barrier.known.lease.FencingToken, barrier.version), barrier.known, barrier.reading, by)
			break
		}
	}
	l.place(w)
}

// place puts an applied write into the order of versions, in which numbers rise.
func (l *lockHistory) place(w *write) {
	b := &l.ledger
	at, same := slices.BinarySearchFunc(b.order, w.version, func(other *write, version int64) int { return int(other.version - version) })
	if same {
		l.accuse(exactlyOnce, fmt.Sprintf("the writes %s and %s have one version, %d", b.order[at].number, w.number, w.version), b.order[at], w)
		return
	}
	if at == 0 && len(b.order) == orderKept {
		return
	}
	b.order = slices.Insert(b.order, at, w)
	if at > 0 {
		l.compareOrder(b.order[at-1], w)
	}
	if at+1 < len(b.order) {
		l.compareOrder(w, b.order[at+1])
	}
	if len(b.order) > orderKept {
		b.order = b.order[1:]
	}
}

// compareOrder is given two applied writes in the order of their versions.
func (l *lockHistory) compareOrder(a, b *write) {
	if a.less(b.number) {
		return
	}
	property := exactlyOnce
	if a.token > b.token {
		property = oldShutOut
	}
	l.accuse(property, fmt.Sprintf("the write %s (version %d) was applied after %s (version %d)", b.number, b.version, a.number, a.version), a, b)
}

// countVersions is P10 by numbers: a version for each write, and none besides.
func (l *lockHistory) countVersions(last proof) {
	b := &l.ledger
	excess := b.versionMax - b.applied - b.underWay - b.doubtful
	if excess <= b.excess {
		return
	}
	b.excess = excess
	l.accuse(exactlyOnce, fmt.Sprintf(
		"version %d is out, but only %d writes were acknowledged, %d are under way and %d in doubt: a write was applied twice, or one that nobody sent",
		b.versionMax, b.applied, b.underWay, b.doubtful), last)
}
