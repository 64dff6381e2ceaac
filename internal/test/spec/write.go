package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// write decides one write, and applies it if it is admitted.
func (s State) write(op Op) (State, Answer) {
	r, content := s.Resource(op.Name), contentOf(op)
	if op.Kind == Guard && op.Value == "" { // it has no digest
		content = ""
	}
	if s.isReplayedBy(op, content) {
		if op.Kind == Guard {
			return s, Answer{Code: CodeAdmitted, Replayed: true}
		}
		return s, Answer{Code: CodeAdmitted, Replayed: true, Version: r.newestVersion, Created: r.lastCreated}
	}
	if refused := s.judge(op); refused != (Answer{}) {
		// Whether a transaction without a digest is the last accepted one can't be told.
		if op.Kind == Guard && s.repeatsNumber(op) && (content == "" || r.lastContent == "") {
			refused.Code, refused.Reason = CodeTokenReused, ""
		}
		return s, refused
	}
	if refused := r.precondition(op); refused != (Answer{}) {
		return s, refused
	}
	return s.admit(op, content)
}

// admit applies a write that the rule admits.
func (s State) admit(op Op, content string) (State, Answer) {
	r := s.Resource(op.Name)
	if op.Token > r.GrantedToken && op.Token == s.inForce(op.Name).token {
		r.adopted = op.Token
	}
	next := r.raised(op, content)
	next.lastCreated = next.change(op, op)
	if op.Kind == Guard {
		return s.with(op.Name, next), Answer{Code: CodeAdmitted}
	}
	return s.with(op.Name, next), Answer{Code: CodeAdmitted, Version: next.newestVersion, Created: next.lastCreated}
}

// writeSet decides writes one by one.
func (s State) writeSet(writes []Op) (State, Answer) {
	answers := make([]Answer, len(writes))
	for i, write := range writes {
		s, answers[i] = s.write(write)
	}
	return s, AnswerOfSet(answers)
}

// transact applies all operations of a transaction, or none. The first token that is refused decides, or else the first
// operation. It is a replay only if it is one on each of its fences.
func (s State) transact(op Op) (State, Answer) {
	var tokens, changes []Op
	for _, part := range op.Parts {
		if part.Kind == Token {
			tokens = append(tokens, part)
		} else {
			changes = append(changes, part)
		}
	}
	content := contentOf(changes...)
	replayed := true
	for _, token := range tokens {
		replayed = replayed && s.isReplayedBy(token, content)
	}
	if replayed {
		return s, s.committed(changes, true)
	}
	for _, token := range tokens {
		if refused := s.judge(token); refused != (Answer{}) {
			return s, refused
		}
	}
	for i, change := range changes {
		if refused := s.Resource(change.Name).precondition(change); refused != (Answer{}) {
			if refused.Code != CodeNotFound {
				refused.Op = i + 1
			}
			return s, refused
		}
	}
	next := s
	for _, token := range tokens {
		raised := s.Resource(token.Name).raised(token, content)
		for _, change := range changes {
			if change.Name == token.Name {
				raised.lastCreated = raised.change(token, change) || raised.lastCreated
			}
		}
		next = next.with(token.Name, raised)
	}
	return next, next.committed(changes, false)
}

func (s State) committed(changes []Op, replayed bool) Answer {
	versions := make([]int64, len(changes))
	for i, change := range changes {
		versions[i] = s.Resource(change.Name).newestVersion
	}
	return Answer{Code: CodeAdmitted, Replayed: replayed, Versions: versionList(versions)}
}

func versionList(versions []int64) string { return strings.Trim(fmt.Sprint(versions), "[]") }

// raised is the state after a write was accepted, before its records are changed. The fence never falls, also
// where an unnumbered write may follow a numbered one.
func (r Resource) raised(token Op, content string) Resource {
	if token.Token == r.LastToken {
		r.LastSequence = max(r.LastSequence, token.sequence())
	} else {
		r.LastSequence = token.sequence()
	}
	r.LastToken = token.Token
	if token.Kind != Guard {
		r.newestVersion++
	}
	r.lastContent, r.lastCreated = "", false
	if token.Sequence != nil {
		r.lastContent = content
	}
	r.records = cloned(r.records)
	return r
}

// change applies an operation to records that raised has made this state's own. It reports whether it made a record.
func (r Resource) change(token, op Op) (created bool) {
	switch op.Kind {
	case Delete:
		delete(r.records, op.Key)
	case Put:
		_, exists := r.records[op.Key]
		r.records[op.Key] = Record{
			Version: r.newestVersion, Token: token.Token, Sequence: token.sequence(), Numbered: token.Sequence != nil,
			ContentType: op.Type, Value: op.Value,
		}
		return !exists
	}
	return false
}

// contentOf is the content of a write, without its token, wherever it is sent.
func contentOf(changes ...Op) string {
	content := ""
	for _, op := range changes {
		content += string(op.Kind) + " " + string(op.Name) + "\n" + string(op.Key) + "\n" + strconv.Quote(op.Type+"\n"+op.Value)
		if op.Expect != nil {
			content += " " + strconv.FormatInt(*op.Expect, 10)
		}
	}
	return content
}
