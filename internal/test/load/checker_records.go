package load

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// reading is a look at the records of a resource.
type reading struct {
	history        *lockHistory
	sent, answered time.Duration
	known          *grant
	// due are the writes that must be there, by key, or newer ones.
	due   map[string]*write
	found string
}

func (r *reading) evidence() string { return span(r.sent, r.answered) + " read: " + r.found }

// reads is called before records are read.
func (l *lockHistory) reads() *reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &reading{history: l, sent: l.checker.now(), known: l.newest, due: maps.Clone(l.ledger.newest)}
}

// listed is called with all records of the resource.
func (r *reading) listed(records []api.RecordInfo) {
	l := r.history
	l.mu.Lock()
	defer l.mu.Unlock()
	r.answered = l.checker.now()
	last := int64(0)
	found := map[string]int64{}
	for _, record := range records {
		r.found += fmt.Sprintf("%s has version %d of %s; ", record.Key, record.Version,
			numberOf(record.FencingToken, record.Sequence))
		found[record.Key] = record.Version
		last = max(last, record.Version)
	}
	for key := range r.due {
		r.expectDue(key, found[key])
	}
	for _, record := range records {
		r.judge(record.Key, record.Version, numberOf(record.FencingToken, record.Sequence), nil)
	}
	l.ledger.versionMax = max(l.ledger.versionMax, last)
	l.countVersions(r)
	if r.known != nil {
		l.ledger.barriers = append(l.ledger.barriers, barrier{known: r.known, reading: r, version: last})
		if len(l.ledger.barriers) > barriersKept {
			l.ledger.barriers = l.ledger.barriers[1:]
		}
	}
}

// got is called with one record.
func (r *reading) got(key string, record lockclient.Record) {
	l := r.history
	l.mu.Lock()
	defer l.mu.Unlock()
	r.answered = l.checker.now()
	n := numberOf(record.Token.Token, record.Token.Sequence)
	r.found = fmt.Sprintf("%s has version %d of %s, %q", key, record.Version, n, record.Value)
	r.expectDue(key, record.Version)
	r.judge(key, record.Version, n, record.Value)
	l.ledger.versionMax = max(l.ledger.versionMax, record.Version)
	l.countVersions(r)
}

// missed is called if there is no such record.
func (r *reading) missed(key string) {
	l := r.history
	l.mu.Lock()
	defer l.mu.Unlock()
	r.answered, r.found = l.checker.now(), key+" is not there"
	r.expectDue(key, 0)
}

// expectDue compares the version of a record, 0 if there is none, with that of the write that must be there.
func (r *reading) expectDue(key string, version int64) {
	if w := r.due[key]; w != nil && version < w.version {
		r.history.accuse(nothingLost, fmt.Sprintf("the acknowledged write %s of %s, version %d, is lost", w.number, key,
			w.version), w, r)
	}
}

// judge holds a record against the write of its number. value is nil where it was not read.
func (r *reading) judge(key string, version int64, n number, value []byte) {
	l := r.history
	b := &l.ledger
	w := b.numbers[n]
	switch {
	case w == nil:
		if version > b.forgottenVersion && n.token > b.forgottenToken {
			l.accuse(nothingElse, fmt.Sprintf("%s has version %d of the write %s, which no client sent", key, version, n), r)
		}
	case w.key != key || (value != nil && string(value) != w.value):
		l.accuse(exactlyOnce, fmt.Sprintf("the write %s of %s was sent with the value %q", n, w.key, w.value), w, r)
	case w.version == 0 && w.ruledOut():
		l.accuse(nothingElse, fmt.Sprintf("the write %s was refused, and is there", n), w, r)
	case w.version == 0:
		l.learn(w, version, r)
	case w.version != version:
		l.accuse(exactlyOnce, fmt.Sprintf("the write %s was acknowledged with version %d, and has version %d", n, w.version,
			version), w, r)
	}
}

// settled is called at the end with the newest version that is there, when nothing is under way.
func (l *lockHistory) settled(r *reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := &l.ledger; b.applied > b.versionMax {
		l.accuse(exactlyOnce, fmt.Sprintf("%d writes were acknowledged, and only %d versions are out", b.applied,
			b.versionMax), r)
	}
}

func numberOf(token int64, sequence *int64) number {
	n := number{token: token}
	if sequence != nil {
		n.sequence = *sequence
	}
	return n
}

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

// barrier is a reading that began after token had been granted: every write with a lower token has a version of at most
// this.
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

// learn notes the version of an applied write, from an acknowledgement or from a reading.
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
			l.accuse(oldShutOut, fmt.Sprintf("the write %s got version %d, when token %d had been granted and the newest "+
				"version was %d",
				w.number, version, barrier.known.lease.FencingToken, barrier.version), barrier.known, barrier.reading, by)
			break
		}
	}
	l.insert(w)
}

// insert puts an applied write into the order of versions, in which numbers rise.
func (l *lockHistory) insert(w *write) {
	b := &l.ledger
	at, same := slices.BinarySearchFunc(b.order, w.version,
		func(other *write, version int64) int { return int(other.version - version) })
	if same {
		l.accuse(exactlyOnce, fmt.Sprintf("the writes %s and %s have one version, %d", b.order[at].number, w.number,
			w.version), b.order[at], w)
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
	l.accuse(property, fmt.Sprintf("the write %s (version %d) was applied after %s (version %d)", b.number, b.version,
		a.number, a.version), a, b)
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
		"version %d is out, but only %d writes were acknowledged, %d are under way and %d in doubt: a write was applied "+
			"twice, or one that no client sent",
		b.versionMax, b.applied, b.underWay, b.doubtful), last)
}
