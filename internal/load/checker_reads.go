package load

import (
	"fmt"
	"maps"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
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
