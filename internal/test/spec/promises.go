package spec

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// p1LeasesAreApart: by the database's clock, no lease is granted while one runs that it conflicts with. A lease runs
// until the latest expiry that was answered, unless something was sent that may have ended it before.
func (s *subject) p1LeasesAreApart() {
	var running []*grant
	inOrder := func(a, b *grant) int { return cmp.Compare(a.Chosen.GrantedAt, b.Chosen.GrantedAt) }
	for _, g := range slices.SortedStableFunc(slices.Values(s.kept), inOrder) {
		if g.Chosen.GrantedAt == 0 {
			continue
		}
		running = slices.DeleteFunc(running, func(before *grant) bool {
			return before.until <= g.Chosen.GrantedAt || before.ending.Sent < g.first
		})
		for _, before := range running {
			if before.ending.Sent > g.Answered && s.concerns(before, g) && !(before.shared() && g.shared()) {
				s.violated("P1", append([]Call{before.Call, g.Call}, before.renewed...), "%s was granted while %s ran", g, before)
			}
		}
		running = append(running, g)
	}
}

// p2TokensRise: no token is granted twice; each is greater than those that any client knew when the acquire was sent,
// and than the one that it said it knew; and they rise by the database's clock.
func (s *subject) p2TokensRise() {
	known := knowing(s.all)
	var before, latest *grant
	for _, g := range s.all {
		if newest := known(g.first); newest != nil && newest.Answer.Token > g.Answer.Token && s.concerns(newest, g) {
			s.violated("P2", []Call{newest.Call, g.Call}, "%s was granted to an acquire that was sent after %s was answered", g,
				newest)
		}
		if g.Op.Name == s.name && g.Answer.Token < g.Op.NewestToken {
			s.violated("P2", []Call{g.Call}, "%s was granted to a client that knew token %d", g, g.Op.NewestToken)
		}
		if before != nil && before.Answer.Token == g.Answer.Token && s.concerns(before, g) {
			s.violated("P2", []Call{before.Call, g.Call}, "%s was granted beside %s", g, before)
		}
		if latest != nil && latest.Chosen.GrantedAt > g.Chosen.GrantedAt && g.Chosen.GrantedAt > 0 && s.concerns(latest, g) {
			s.violated("P2", []Call{latest.Call, g.Call}, "%s was granted before %s", g, latest)
		}
		if before = g; latest == nil || g.Chosen.GrantedAt > latest.Chosen.GrantedAt {
			latest = g
		}
	}
}

// p3OlderTokensAreShutOut: once a token was granted, no write with an older one is admitted; nor under a lease that was
// shared or released. So versions follow tokens, and what a reading found after a grant is not followed by older writes.
func (s *subject) p3OlderTokensAreShutOut() {
	known, tokens := knowing(s.kept), s.tokens(s.kept)
	for _, w := range s.writes {
		sent := w.applied()
		if len(sent) == 0 {
			continue
		}
		by := w.evidence()
		if newer := known(sent[0].Sent); newer != nil && newer.Answer.Token > w.token {
			s.violated("P3", append(by, newer.Call), "the write %s was admitted, sent after %s was answered", w.writeNumber, newer)
		}
		lease := tokens[w.token]
		switch {
		case lease == nil:
		case lease.shared():
			s.violated("P3", append(by, lease.Call), "the write %s was admitted under a shared lease, %s", w.writeNumber, lease)
		case lease.released.Answered < sent[0].Sent:
			s.violated("P3", append(by, lease.Call, lease.released), "the write %s was admitted, sent after the end of %s",
				w.writeNumber, lease)
		}
	}
	var last *write
	for _, w := range s.versions {
		if last != nil && last.token > w.token && last.version < w.version {
			s.violated("P3", append(last.evidence(), w.evidence()...),
				"the write %s (version %d) was admitted after %s (version %d)", w.writeNumber, w.version, last.writeNumber, last.version)
		}
		if last == nil || last.compare(w.writeNumber) < 0 {
			last = w
		}
	}
	if !s.deletes {
		s.p3ReadingsAreLast(known)
	}
}

// p3ReadingsAreLast compares the version of a record that was read, after a grant, with those of older tokens' writes.
func (s *subject) p3ReadingsAreLast(known func(int64) *grant) {
	type after struct {
		*grant
		read Call
	}
	reads := slices.SortedStableFunc(slices.Values(s.reads), func(a, b Call) int {
		return cmp.Compare(a.Answer.Version, b.Answer.Version)
	})
	newest := map[store.Name]after{} // by key: of the readings of lower versions, the one after the newest grant
	for _, w := range s.versions {
		for ; len(reads) > 0 && reads[0].Answer.Version < w.version; reads = reads[1:] {
			g, read := known(reads[0].Sent), reads[0]
			if last := newest[read.Op.Key].grant; g != nil && (last == nil || last.Answer.Token < g.Answer.Token) {
				newest[read.Op.Key] = after{g, read}
			}
		}
		for key := range w.values {
			if by := newest[key]; by.grant != nil && by.grant.Answer.Token > w.token {
				s.violated("P3", append(w.evidence(), by.Call, by.read),
					"the write %s of %s has version %d, and a reading after %s was granted found version %d", w.writeNumber, key,
					w.version, by.grant, by.read.Answer.Version)
			}
		}
	}
}

func (s *subject) tokens(grants []*grant) map[int64]*grant {
	tokens := map[int64]*grant{}
	for _, g := range grants {
		tokens[g.Answer.Token] = g
	}
	return tokens
}

// p5TokensWereGranted: what is admitted has a token that was granted, and the lease_id of that lease if it has one; and
// a row is changed by none without a token (P11).
func (s *subject) p5TokensWereGranted() {
	tokens := s.tokens(s.all)
	for _, w := range s.writes {
		sent := w.applied()
		if len(sent) == 0 {
			continue
		}
		lease := tokens[w.token]
		switch id := tokenOf(sent[0].Op, s.name).LeaseID; {
		case lease == nil:
			s.violated("P5", w.evidence(), "the write %s was admitted, and no client was granted its token", w.writeNumber)
		case id != uuid.Nil && id != lease.Answer.ID:
			s.violated("P5", append(w.evidence(), lease.Call), "the write %s was admitted with the lease_id %s, and it is of %s",
				w.writeNumber, id, lease)
		}
	}
	for _, w := range s.bare {
		if sent := w.applied(); len(sent) > 0 {
			s.violated(w.promise(), sent, "a change without a token was admitted")
		}
	}
}

// promise is the one that a change without a token breaks.
func (w *write) promise() string {
	if w.attempts[0].Op.Kind == Guard {
		return "P11"
	}
	return "P5"
}

// tokenOf is the part of an operation that has the token for a name.
func tokenOf(op Op, name store.Name) Op {
	for _, part := range op.Parts {
		if part.Kind == Token && part.Name == name {
			return part
		}
	}
	return op
}

// p6HoldersAlone: a lease is renewed and released by its owner with its lease_id, before it has expired or been replaced.
func (s *subject) p6HoldersAlone() {
	known := knowing(s.kept)
	for _, call := range s.calls {
		if call.Answer.Code != CodeRenewed && call.Answer.Code != CodeReleased {
			continue
		}
		g, newer := s.granted[call.Op.LeaseID], known(call.Sent)
		switch {
		case g == nil && s.part:
		case g == nil:
			s.violated("P6", []Call{call}, "a lease was %s that no client was granted", call.Answer.Code)
		case call.Op.Owner != g.Op.Owner || call.Op.Token != g.Answer.Token || call.Op.Name != g.Op.Name:
			s.violated("P6", []Call{g.Call, call}, "%s was %s by %s with token %d", g, call.Answer.Code, call.Op.Owner, call.Op.Token)
		case call.Op.Kind == Release && g.ending.Sent < call.Sent, newer == nil, g.shared() && newer.shared(), g.first <= s.lost:
		case newer.Answer.Token > g.Answer.Token:
			s.violated("P6", []Call{g.Call, newer.Call, call}, "%s was %s after %s had replaced it", g, call.Answer.Code, newer)
		}
	}
	if s.crashed {
		return
	}
	for _, g := range s.grants {
		until, unknown := g.Chosen.Until, false // unknown: a renewal was sent before whose answer is not known
		byUntil := func(a, b Call) int { return cmp.Or(cmp.Compare(a.Chosen.Until, b.Chosen.Until), bySent(a, b)) }
		for _, call := range slices.SortedFunc(slices.Values(s.of[g.Answer.ID]), byUntil) {
			at := call.Chosen.Until - cmp.Or(call.Op.TTL, g.Op.TTL).Microseconds()
			if unknown = unknown || call.Op.Kind == Renew && mayApply(call); call.Answer.Code != CodeRenewed {
				continue
			}
			if at > until && !unknown {
				s.violated("P6", []Call{g.Call, call}, "%s was renewed at %s, after it had expired", g, clock(at))
			}
			until = call.Chosen.Until
		}
	}
}

// p9NothingIsLost: a record that was acknowledged is there with its version, or a newer one (P4).
func (s *subject) p9NothingIsLost() {
	type ack struct {
		*write
		Call
	}
	var acks []ack
	for _, w := range s.writes {
		for _, call := range w.attempts {
			if call.Answer.Code == CodeAdmitted {
				acks = append(acks, ack{w, call})
			}
		}
	}
	slices.SortFunc(acks, func(a, b ack) int { return cmp.Compare(a.Answered, b.Answered) })
	newest := map[store.Name]ack{}
	for _, read := range s.reads {
		for ; len(acks) > 0 && acks[0].Answered < read.Sent; acks = acks[1:] {
			for key := range acks[0].values {
				if last := newest[key]; last.write == nil || last.version <= acks[0].version {
					newest[key] = acks[0]
				}
			}
		}
		missing := read.Answer.Code == CodeNotFound
		if last := newest[read.Op.Key]; last.write != nil && !s.deletes && (missing || read.Answer.Version < last.version) {
			s.violated("P9", []Call{last.Call, read}, "the acknowledged write %s of %s, version %d, is lost", last.writeNumber,
				read.Op.Key, last.version)
		}
	}
}

// p10NumbersCountOnce: each number has one version, and each version one number, in one order; a replay has the first
// answer; a record is as it was sent; and there are no more versions than writes.
func (s *subject) p10NumbersCountOnce() {
	for _, w := range s.writes {
		var fresh, first *Call
		for i, call := range w.attempts {
			if last, shown := lastOf(call); shown && w.numbered && last == w.writeNumber && !w.rivals && !s.part {
				s.violated("P10", w.attempts[:i+1], "the write %s was refused as stale, and it is the last that was admitted", last)
			}
			if call.Answer.Code != CodeAdmitted {
				continue
			}
			if first != nil && versionOf(*first, s.name) != versionOf(call, s.name) {
				s.violated("P10", []Call{*first, call}, "the write %s was answered with two versions", w.writeNumber)
			} else if fresh != nil && !call.Answer.Replayed && w.numbered {
				s.violated("P10", []Call{*fresh, call}, "the write %s was applied twice", w.writeNumber)
			}
			if first = cmp.Or(first, &call); !call.Answer.Replayed {
				fresh = &call
			}
		}
	}
	for i, w := range s.versions[min(1, len(s.versions)):] {
		switch last := s.versions[i]; {
		case last.version == w.version:
			s.violated("P10", append(last.evidence(), w.evidence()...), "the writes %s and %s have one version, %d",
				last.writeNumber, w.writeNumber, w.version)
		case last.token == w.token && last.compare(w.writeNumber) >= 0:
			s.violated("P10", append(last.evidence(), w.evidence()...),
				"the write %s (version %d) was admitted after %s (version %d)", w.writeNumber, w.version, last.writeNumber, last.version)
		}
	}
	if s.lost < 0 && !s.part {
		s.p10VersionsAreWrites()
	}
}

// p10VersionsAreWrites: by the time of an answer, so many writes were sent that may have been applied as it has versions.
func (s *subject) p10VersionsAreWrites() {
	var sent []int64
	for _, w := range slices.Concat(s.writes, s.bare) {
		for _, call := range w.attempts {
			if w.found != nil || mayApply(call) && (!w.refused() || w.version > 0) {
				if sent = append(sent, call.Sent); w.numbered {
					break
				}
			}
		}
	}
	slices.Sort(sent)
	for _, call := range s.calls {
		version := versionOf(call, s.name)
		writes := sort.Search(len(sent), func(i int) bool { return sent[i] >= call.Answered })
		if known := call.Answer.Code == CodeAdmitted || call.Answer.Code == CodeRecord; known && version > int64(writes) {
			s.violated("P10", []Call{call}, "there is version %d, and only %d writes can have been applied", version, writes)
			return // all that follow are too many, too
		}
	}
}

// judgeReading: a record is as it was sent (P10), by a write that was sent (P4), with a token (P5 or P11).
func (s *subject) judgeReading(read Call) {
	key, stored, w := read.Op.Key, read.Answer.Record, s.numbers[numberOf(read)]
	for _, bare := range s.bare {
		if value, put := bare.values[key]; put && value == stored.Value && value != "" {
			s.violated(bare.promise(), append(bare.evidence(), read), "a change without a token is there")
			return
		}
	}
	switch {
	case w == nil:
		s.violated("P4", []Call{read}, "%s has version %d of the write %s, which no client sent", key, read.Answer.Version,
			numberOf(read))
	case w.rivals || w.attempts[0].Sent <= s.lost:
	case w.values[key] != stored.Value:
		s.violated("P10", append(w.evidence(), read), "the write %s is not found as it was sent", w.writeNumber)
	case w.version != read.Answer.Version:
		s.violated("P10", append(w.evidence(), read), "the write %s has version %d, and is found with version %d", w.writeNumber,
			w.version, read.Answer.Version)
	}
}

// p12RefusalsLeaveNothing: what was refused is neither in a record nor on the fence; nor is what nobody has sent (P4).
func (s *subject) p12RefusalsLeaveNothing() {
	for _, w := range s.writes {
		admitted := slices.ContainsFunc(w.attempts, func(call Call) bool { return call.Answer.Code == CodeAdmitted })
		if w.refused() && (admitted || w.found != nil) {
			s.violated("P12", w.evidence(), "the write %s was refused, and its fence had not seen it; it is there", w.writeNumber)
		}
	}
	for _, read := range s.reads {
		if read.Answer.Code == CodeRecord {
			s.judgeReading(read)
		}
	}
	for _, call := range s.calls {
		last, shown := lastOf(call)
		if w := s.numbers[last]; shown && last.token > 0 && (w == nil || w.attempts[0].Sent >= call.Answered) {
			s.violated("P4", []Call{call}, "the fence has admitted the write %s, which no client had sent", last)
		}
	}
}

// InOrder checks what a database decided about locks, in the order in which it did: acquires that joined the queue
// (CodeQueued) or were granted, leases that ended (Expire) and waiters that left. Each grant must be that of the contract:
// beside no other (P1), with a greater token (P2), to the first in the queue (P8). In the end nobody waits.
//
// A waiter that waits for less than store.WaitMax may be passed, since its time may be over, which nobody decides. It
// keeps its place, as its gateway asks once more.
func InOrder(state State, decided []Call) error {
	for i, call := range decided {
		next, answer := state.decide(call)
		if answer.Code != call.Answer.Code {
			return fmt.Errorf("%s\nwant %s\nin %s\nafter\n%s", call, answer, state.Summary(),
				lines(decided[max(0, i-20):i]))
		}
		state = next
	}
	if left := state.queue; len(left) > 0 {
		return fmt.Errorf("%d still wait, the first is %s", len(left), left[0])
	}
	return nil
}

func (s State) decide(call Call) (State, Answer) {
	op := call.Op
	if call.Answer.Code != CodeGranted {
		return s.Step(op, call.Chosen)
	}
	waits := func(w Op) bool { return w.Name == op.Name && w.Request == op.Request && w.Request != "" }
	moment := s
	moment.queue = slices.DeleteFunc(slices.Clone(s.queue), func(w Op) bool { return w.Wait < store.WaitMax && !waits(w) })
	if op.Wait = 0; slices.ContainsFunc(s.queue, waits) {
		op.Kind = Serve
	}
	next, answer := moment.Step(op, call.Chosen)
	next.queue = slices.DeleteFunc(slices.Clone(s.queue), waits)
	return next, answer
}

func lines(calls []Call) (text string) {
	for _, call := range calls {
		text += call.String() + "\n"
	}
	return text
}
