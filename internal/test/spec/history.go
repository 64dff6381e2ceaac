package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Violation is something in a history that the contract rules out.
type Violation struct {
	Promise string     `json:"promise"` // its number: P1 to P12
	Name    store.Name `json:"name"`
	What    string     `json:"what"`
	// Calls are those that show it, and a few that were sent before.
	Calls []Call `json:"calls"`
}

// String is the violation, and its calls as a history of its own.
func (v Violation) String() string {
	text := fmt.Sprintf("# %s on %s: %s", v.Promise, v.Name, v.What)
	for _, call := range v.Calls {
		text += "\n" + call.String()
	}
	return text
}

// violationsMax bounds how many violations of one promise on one name are kept.
const violationsMax = 20

// Check returns what a history shows to be violated of P1 to P6 and P9 to P12. It needs no search: tokens and versions
// order grants and writes as the database did. Only what contradicts that order, the order in which one call was answered
// before another was sent, or the database's clock in the answers, is a violation.
//
// A history has all calls on its names, which had no state before, under no policy. Clients know tokens from answers, or
// send such as can't have been granted. [Resolve] and [Linearize] know more of short histories.
//
// After a [Crash] of the database, a renewal that was answered may be gone. A [Lose] takes back what was answered between
// its times (P14): tokens rise all the same; all else is checked of what was granted and first written after it.
func Check(calls []Call) []Violation { return check(calls, false) }

// CheckPart returns what is violated of P1, P2, P3, P6 and P10 in a history that need not be whole: names may have had a
// state before, and grants and writes may be missing. What ends a lease must be there. Clocks of those who recorded it may
// differ by the skew.
func CheckPart(calls []Call, skew time.Duration) []Violation {
	apart := make([]Call, len(calls))
	for i, call := range calls {
		if call.Sent -= skew.Nanoseconds() / 2; call.Answered != Never {
			call.Answered += skew.Nanoseconds() / 2
		}
		apart[i] = call
	}
	return check(apart, true)
}

func check(calls []Call, part bool) []Violation {
	h := &history{part: part, subjects: map[store.Name]*subject{}, granted: map[uuid.UUID]*grant{}, of: map[uuid.UUID][]Call{},
		first: map[[2]string]int64{}, lost: -1}
	for _, call := range slices.SortedStableFunc(slices.Values(calls), bySent) {
		h.add(call)
	}
	names := slices.Sorted(maps.Keys(h.subjects)) // a name is after those above it
	for _, name := range names {
		h.subjects[name].gather()
	}
	for _, name := range names {
		s := h.subjects[name]
		s.p1LeasesAreApart()
		s.p2TokensRise()
		s.p3OlderTokensAreShutOut()
		s.p6HoldersAlone()
		s.p10NumbersCountOnce()
		if !part {
			s.p5TokensWereGranted()
			s.p9NothingIsLost()
			s.p12RefusalsLeaveNothing()
		}
	}
	return h.found
}

// history is all calls, by name.
type history struct {
	part     bool // calls may be missing, see CheckPart
	subjects map[store.Name]*subject
	granted  map[uuid.UUID]*grant
	of       map[uuid.UUID][]Call // by lease_id: renewals and releases; by session: its ends
	first    map[[2]string]int64  // by name and request_id: when an acquire was first sent
	crashed  bool
	lost     int64 // when the last loss was over; -1: there was none
	found    []Violation
}

// subject is a lock and its resource.
type subject struct {
	*history
	name   store.Name
	calls  []Call // in the order in which they were sent, like all below that have no other
	grants []*grant
	writes []*write
	reads  []Call
	breaks []Call

	all      []*grant               // by token: on the name, and on the subtrees above
	kept     []*grant               // of these, those that no loss can have taken back
	numbers  map[writeNumber]*write // the first of each number
	bare     []*write               // without a token
	versions []*write               // the applied whose version is known, in its order
	deletes  bool
	counts   map[string]int
}

// grant is a lease that an acquire has returned. Call is its first answer.
type grant struct {
	Call
	first    int64  // when its acquire was first sent
	until    int64  // the latest expiry that was answered, by the database's clock
	renewed  []Call // the renewal that was answered so
	ending   Call   // the first that was sent to end it
	released Call   // the first that was answered to have ended it
}

func (g *grant) shared() bool { return g.Op.Mode == store.Shared }

func (g *grant) String() string {
	return fmt.Sprintf("token %d of %s (%s, %s on %s, from %s to %s)", g.Answer.Token, g.Op.Owner,
		cmp.Or(g.Op.Mode, store.Exclusive), cmp.Or(g.Op.Scope, store.Node), g.Op.Name, clock(g.Chosen.GrantedAt), clock(g.until))
}

func clock(micros int64) string { return time.UnixMicro(micros).UTC().Format("15:04:05.000000") }

type writeNumber struct{ token, sequence int64 }

func (n writeNumber) String() string { return fmt.Sprintf("%d.%d", n.token, n.sequence) }

func (n writeNumber) compare(other writeNumber) int {
	return cmp.Or(cmp.Compare(n.token, other.token), cmp.Compare(n.sequence, other.sequence))
}

// write is one change of a resource, however often it was sent.
type write struct {
	writeNumber

	numbered bool
	content  string
	values   map[store.Name]string
	attempts []Call
	version  int64 // 0: not known
	found    *Call // a reading that shows it
	rivals   bool  // other content was sent under its number
}

// mayApply reports whether an attempt may have been applied.
func mayApply(call Call) bool {
	return call.Answer.Code == CodeAdmitted || call.Answer.Code == CodeUnknown || call.Answered == Never
}

// versionOf is the version that an attempt was answered with on a name.
func versionOf(call Call, name store.Name) (version int64) {
	if call.Op.Kind != Transact {
		return call.Answer.Version
	}
	versions := strings.Fields(call.Answer.Versions)
	for _, part := range call.Op.Parts {
		if part.Kind == Token || len(versions) == 0 {
			continue
		}
		if part.Name == name {
			_, _ = fmt.Sscan(versions[0], &version)
			return version
		}
		versions = versions[1:]
	}
	return 0
}

// lastOf is the last write that a refusal shows on the fence.
func lastOf(call Call) (last writeNumber, shown bool) {
	last = writeNumber{call.Answer.LastToken, call.Answer.LastSequence}
	tokens := 0
	for _, part := range call.Op.Parts {
		if part.Kind == Token {
			tokens++
		}
	}
	return last, call.Answer.Code == string(store.VerdictTokenStale) && call.Answer.GrantedToken > 0 && tokens <= 1
}

// refused reports whether no attempt was applied, nor will be: all were refused; or one found a fence that has not seen
// the write, and what is stale stays so.
func (w *write) refused() bool {
	return !slices.ContainsFunc(w.attempts, mayApply) || slices.ContainsFunc(w.attempts, func(call Call) bool {
		last, shown := lastOf(call)
		return shown && w.numbered && last.compare(w.writeNumber) < 0
	})
}

// applied returns the attempts one of which was applied, the earliest first: the one that was admitted, or those without
// an answer, if a replay or a reading shows the write.
func (w *write) applied() []Call {
	var may []Call
	shown := w.found != nil
	for _, call := range w.attempts {
		if call.Answer.Code == CodeAdmitted && !call.Answer.Replayed {
			return []Call{call}
		}
		shown = shown || call.Answer.Code == CodeAdmitted
		if mayApply(call) {
			may = append(may, call)
		}
	}
	if !shown {
		return nil
	}
	return may
}

// evidence is its attempts, and the reading that shows it.
func (w *write) evidence() []Call {
	evidence := slices.Clone(w.attempts)
	if w.found != nil {
		evidence = append(evidence, *w.found)
	}
	return slices.Clip(evidence)
}

func (h *history) subject(name store.Name) *subject {
	if h.subjects[name] == nil {
		h.subjects[name] = &subject{history: h, name: name, numbers: map[writeNumber]*write{}, counts: map[string]int{}}
	}
	return h.subjects[name]
}

func (h *history) add(call Call) {
	switch op := call.Op; op.Kind {
	case Crash:
		h.crashed = true
	case Lose:
		h.lost = max(h.lost, call.Answered)
	case EndSession:
		h.of[op.Session] = append(h.of[op.Session], call)
	case Transact:
		for _, part := range op.Parts {
			if part.Kind == Token {
				h.subject(part.Name).addWrite(call, part)
			}
		}
	case Put, Delete, Guard:
		h.subject(op.Name).addWrite(call, op)
	case Acquire:
		s := h.subject(op.Name)
		s.calls = append(s.calls, call)
		request := [2]string{string(op.Name), op.Request}
		if _, again := h.first[request]; !again || op.Request == "" {
			h.first[request] = call.Sent
		}
		if call.Answer.Code == CodeGranted {
			s.addGrant(call)
		}
	case Renew, Release:
		s := h.subject(op.Name)
		s.calls, h.of[op.LeaseID] = append(s.calls, call), append(h.of[op.LeaseID], call)
	case Break, Expire:
		s := h.subject(op.Name)
		s.calls, s.breaks = append(s.calls, call), append(s.breaks, call)
	case ReadRecord:
		s := h.subject(op.Name)
		s.calls = append(s.calls, call)
		if call.Answer.Code == CodeRecord || call.Answer.Code == CodeNotFound {
			s.reads = append(s.reads, call)
		}
	}
}

func (s *subject) addGrant(call Call) {
	if g := s.granted[call.Answer.ID]; g != nil && g.Answer.Token == call.Answer.Token && g.Op.Name == s.name {
		g.Answered, g.until = min(g.Answered, call.Answered), max(g.until, call.Chosen.Until)
		return
	}
	first := s.first[[2]string{string(s.name), call.Op.Request}]
	never := Call{Sent: Never, Answered: Never}
	g := &grant{Call: call, first: first, until: call.Chosen.Until, ending: never, released: never}
	s.grants, s.granted[call.Answer.ID] = append(s.grants, g), g
}

// follow notes what a later call did to the lease.
func (g *grant) follow(call Call, crashed bool) {
	switch {
	case call.Op.Kind == Renew:
		if call.Answer.Code == CodeRenewed && !crashed && call.Chosen.Until > g.until {
			g.until, g.renewed = call.Chosen.Until, []Call{call}
		}
	case call.Op.Kind == Break && call.Answered < g.first: // of a lease before it
	default:
		if call.Sent < g.ending.Sent {
			g.ending = call
		}
		ended := call.Answer.Code == CodeReleased || call.Answer.Code == CodeBroken && call.Answer.Token == g.Answer.Token
		if ended && call.Answered < g.released.Answered {
			g.released = call
		}
	}
}

// addWrite adds an attempt of a write under a token.
func (s *subject) addWrite(call Call, token Op) {
	s.calls = append(s.calls, call)
	w := &write{numbered: token.Sequence != nil, values: map[store.Name]string{}}
	w.token, w.sequence = token.Token, token.sequence()
	for _, part := range append(call.Op.Parts, call.Op) {
		if part.Name == s.name && part.Kind != Token && part.Kind != Transact {
			w.values[part.Key] = part.Value
			w.content += string(part.Kind) + " " + string(part.Key) + " " + part.Value + "\n"
			s.deletes = s.deletes || part.Kind == Delete
		}
	}
	same := s.numbers[w.writeNumber]
	switch {
	case w.token == 0:
		s.bare = append(s.bare, w)
	case same != nil && same.numbered && w.numbered && same.content == w.content:
		w = same
	case same != nil:
		w.rivals, same.rivals = true, true
		fallthrough
	default:
		s.writes = append(s.writes, w)
		if same == nil {
			s.numbers[w.writeNumber] = w
		}
	}
	w.attempts = append(w.attempts, call)
	if call.Answer.Code == CodeAdmitted {
		w.version = cmp.Or(w.version, versionOf(call, s.name))
	}
}

// gather orders what was added, and joins what belongs together.
func (s *subject) gather() {
	s.all = slices.Clone(s.grants)
	for at := strings.LastIndexByte(string(s.name), '/'); at > 0; at = strings.LastIndexByte(string(s.name[:at]), '/') {
		for _, g := range s.subject(s.name[:at]).grants {
			if g.Op.Scope == store.Subtree {
				s.all = append(s.all, g)
			}
		}
	}
	slices.SortStableFunc(s.all, func(a, b *grant) int { return cmp.Compare(a.Answer.Token, b.Answer.Token) })
	s.kept = slices.DeleteFunc(slices.Clone(s.all), func(g *grant) bool { return g.first <= s.lost })
	if s.lost >= 0 {
		s.writes = slices.DeleteFunc(s.writes, func(w *write) bool { return w.attempts[0].Sent <= s.lost })
		s.reads = slices.DeleteFunc(s.reads, func(r Call) bool { return r.Sent <= s.lost })
	}
	for _, g := range s.grants {
		ends := s.of[g.Answer.ID]
		if g.Op.Session != uuid.Nil {
			ends = slices.Concat(ends, s.of[g.Op.Session])
		}
		for _, call := range slices.Concat(ends, s.breaks) {
			g.follow(call, s.crashed)
		}
	}
	for i, read := range s.reads {
		if w := s.numbers[numberOf(read)]; w != nil && !w.rivals && read.Answer.Code == CodeRecord {
			w.version, w.found = cmp.Or(w.version, read.Answer.Version), &s.reads[i]
		}
	}
	for _, w := range s.writes {
		if w.version > 0 {
			s.versions = append(s.versions, w)
		}
	}
	slices.SortStableFunc(s.versions, func(a, b *write) int { return cmp.Compare(a.version, b.version) })
}

// numberOf is that of the write that a record is of.
func numberOf(read Call) writeNumber {
	return writeNumber{read.Answer.Record.Token, read.Answer.Record.Sequence}
}

// contextCalls is how many calls of the name a violation shows besides its own, before the last of these that may have
// changed something.
const contextCalls = 8

func (s *subject) violated(promise string, by []Call, format string, arguments ...any) {
	if s.counts[promise]++; s.counts[promise] > violationsMax {
		return
	}
	last := int64(0)
	for _, call := range by {
		if !call.Op.Reads() {
			last = max(last, call.Sent)
		}
	}
	end := sort.Search(len(s.calls), func(i int) bool { return s.calls[i].Sent >= last })
	calls := slices.Concat(by, s.calls[max(0, end-contextCalls):end])
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Or(bySent(a, b), cmp.Compare(a.Client, b.Client)) })
	calls = slices.CompactFunc(calls, func(a, b Call) bool { return a.Sent == b.Sent && a.Client == b.Client })
	s.found = append(s.found, Violation{promise, s.name, fmt.Sprintf(format, arguments...), calls})
}

// knowing returns a function that returns the grant with the greatest token that was answered before a time; or nil.
func knowing(grants []*grant) func(at int64) *grant {
	grants = slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return cmp.Compare(a.Answered, b.Answered) })
	newest := make([]*grant, len(grants)+1)
	for i, g := range grants {
		if newest[i+1] = newest[i]; newest[i] == nil || g.Answer.Token > newest[i].Answer.Token {
			newest[i+1] = g
		}
	}
	return func(at int64) *grant {
		return newest[sort.Search(len(grants), func(i int) bool { return grants[i].Answered >= at })]
	}
}

// concerns reports whether one of two grants is on the name itself: other pairs are checked on their own names.
func (s *subject) concerns(a, b *grant) bool { return a.Op.Name == s.name || b.Op.Name == s.name }
