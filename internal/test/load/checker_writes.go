package load

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// number is a token and a sequence: the name of a numbered write.
type number struct{ token, sequence int64 }

func (n number) String() string { return fmt.Sprintf("%d.%d", n.token, n.sequence) }

func (n number) less(other number) bool {
	return n.token < other.token || n.token == other.token && n.sequence < other.sequence
}

// verdict is what the answer to one attempt of a write says.
type verdict int

const (
	// unanswered: it may have been applied, or may yet be.
	unanswered verdict = iota
	admitted
	// refused: it was not applied by this attempt, and it may have been by another.
	refused
	// excluded: it was not applied by any attempt, and never will be.
	excluded
)

func (v verdict) String() string {
	return [...]string{"no answer", "admitted", "refused", "refused for good"}[v]
}

// write is one numbered write, however often it is sent. Its end is called when no attempt is under way any more.
type write struct {
	history *lockHistory
	number
	key, value, owner string
	shared            bool

	attempts []*attempt
	// version is that of the first acknowledgement, or the one it was found with; 0 before.
	version int64
	ended   bool
}

// attempt is one sending of a write.
type attempt struct {
	write          *write
	sent, answered time.Duration
	// known is the newest grant that had been answered when it was sent.
	known    *grant
	verdict  verdict
	version  int64
	replayed bool
	code     string
}

func (w *write) evidence() string {
	lines := make([]string, len(w.attempts))
	for i, a := range w.attempts {
		lines[i] = a.evidence()
	}
	if len(lines) == 0 {
		return fmt.Sprintf("write %s of %s by %s", w.number, w.key, w.owner)
	}
	return strings.Join(lines, "; ")
}

func (a *attempt) evidence() string {
	text := fmt.Sprintf("%s write %s of %s by %s: %s", span(a.sent, a.answered), a.write.number, a.write.key,
		a.write.owner, a.verdict)
	switch {
	case a.verdict == admitted && a.replayed:
		text += fmt.Sprintf(" as a replay, version %d", a.version)
	case a.verdict == admitted:
		text += fmt.Sprintf(", version %d", a.version)
	case a.code != "":
		text += " (" + a.code + ")"
	}
	return text
}

// begins is called before a write is sent for the first time.
func (g *grant) begins(sequence int64, key, value string) *write {
	l := g.history
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &write{
		history: l, number: number{g.lease.FencingToken, sequence}, key: key, value: value, owner: g.lease.OwnerID,
		shared: g.shared(),
	}
	l.ledger.begin(w)
	return w
}

// send is called before each attempt.
func (w *write) send() *attempt {
	l := w.history
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &attempt{write: w, sent: l.checker.now(), known: l.newest}
	w.attempts = append(w.attempts, a)
	return a
}

// admitted is called with an acknowledgement.
func (a *attempt) admitted(result api.WriteResult) {
	w, l := a.write, a.write.history
	l.mu.Lock()
	defer l.mu.Unlock()
	a.answered, a.verdict, a.version, a.replayed = l.checker.now(), admitted, result.Version, result.Replayed
	switch {
	case w.shared:
		l.accuse(oldShutOut, fmt.Sprintf("the write %s was admitted under a shared lease", w.number), a)
	case !a.replayed && a.known != nil && a.known.lease.FencingToken > w.token:
		l.accuse(oldShutOut, fmt.Sprintf("the write %s was admitted, sent after token %d had been granted", w.number,
			a.known.lease.FencingToken), a.known, a)
	}
	for _, other := range w.attempts {
		if other != a && !a.replayed && other.verdict == admitted && !other.replayed {
			l.accuse(exactlyOnce, fmt.Sprintf("the write %s was applied by two of its attempts", w.number), w)
		}
	}
	switch {
	case w.version == 0:
		l.learn(w, a.version, a)
	case w.version != a.version:
		l.accuse(exactlyOnce, fmt.Sprintf("the write %s was answered with version %d and with version %d", w.number,
			w.version, a.version), w)
	}
	l.countVersions(w)
}

// refused is called where an attempt was not applied: by a refusal, or because nothing was sent. never says that by the
// refusal no other attempt was applied either, nor will be.
func (a *attempt) refused(code string, never bool) {
	l := a.write.history
	l.mu.Lock()
	defer l.mu.Unlock()
	a.answered, a.verdict, a.code = l.checker.now(), refused, code
	if never {
		a.verdict = excluded
	}
}

// lost is called where an attempt has no answer, and will have none.
func (a *attempt) lost(code string) {
	l := a.write.history
	l.mu.Lock()
	defer l.mu.Unlock()
	a.answered, a.code = l.checker.now(), code
}

// end is called when no attempt is under way, and no other follows. It returns what an Observer is shown, and how many
// attempts were answered as replays.
func (w *write) end() (result Write, replays int64) {
	l := w.history
	l.mu.Lock()
	defer l.mu.Unlock()
	w.ended = true
	l.ledger.end(w)
	l.judgeReplay(w)
	l.countVersions(w)
	result = Write{
		Resource: w.history.name, Key: w.key, Value: w.value, Token: w.token, Sequence: w.sequence, Attempts: len(w.attempts),
		Version: w.version, Applied: w.version != 0, Doubtful: w.doubtful(),
	}
	for _, a := range w.attempts {
		if a.replayed {
			replays++
		}
		if a.verdict == admitted && (!a.replayed || result.Sent == 0) {
			result.Sent, result.Answered, result.Replayed = a.sent, a.answered, a.replayed
		}
	}
	return result, replays
}

// isRuledOut reports whether no attempt so far was applied or can still be. No attempt is under way.
func (w *write) isRuledOut() bool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for _, a := range w.attempts {
		if a.verdict == unanswered || a.verdict == admitted {
			return false
		}
	}
	return true
}

// doubtful says of a write that has ended that it may have been applied, or may yet be, without that being known.
func (w *write) doubtful() bool { return w.version == 0 && !w.ruledOut() }

// ruledOut says that the write was not applied, and never will be.
func (w *write) ruledOut() bool {
	doubt := !w.ended
	for _, a := range w.attempts {
		if a.verdict == excluded {
			return true
		}
		doubt = doubt || a.verdict == unanswered
	}
	return !doubt
}

// judgeReplay is P3 where all that is known of a write is a replay: it was applied by one of the attempts that may have
// been, or by what something on the way made of one.
func (l *lockHistory) judgeReplay(w *write) {
	var late *attempt
	replay := false
	for _, a := range w.attempts {
		switch {
		case a.verdict == refused || a.verdict == excluded:
			continue
		case a.verdict == admitted && !a.replayed, a.known == nil, a.known.lease.FencingToken <= w.token:
			return
		}
		late, replay = a, replay || a.replayed
	}
	if replay {
		l.accuse(oldShutOut, fmt.Sprintf("the write %s was applied, sent after token %d had been granted", w.number,
			late.known.lease.FencingToken), late.known, w)
	}
}
