package model

type verdict uint8

const (
	rejected verdict = iota
	admitted
	replayed
)

// judge is the rule (fence.admit): whether the fence admits the write, or recognises it as its last one.
func (m Model) judge(f fence, r operation) verdict {
	sameNumber := r.token == f.last.token && r.sequence == f.last.sequence
	sameContent := r.other == f.last.other
	replay := m.on(ReplayRecognised) && sameNumber && (sameContent || !m.on(ReplayOfSameContent))
	switch {
	case replay && m.on(ReplayBeforeFence):
		return replayed
	case m.on(TokenWasGranted) && r.token > f.granted,
		m.on(GrantRaisesFence) && r.token < f.granted,
		m.on(ReleaseClosesFence) && r.token == f.granted && !f.open:
		return rejected
	case replay:
		return replayed
	case !m.isGreater(r, f.last):
		return rejected
	}
	return admitted
}

// isGreater compares the number of a write with that of the last one.
func (m Model) isGreater(r, last operation) bool {
	switch {
	case !m.on(NumbersCompareAsPairs):
		return r.sequence > last.sequence
	case r.token != last.token:
		return r.token > last.token
	case r.sequence == last.sequence:
		return !m.on(NumberUsedOnce)
	}
	return r.sequence > last.sequence || !m.on(NumbersRise)
}

// mint returns the token of the next grant in a database (fence.mint).
func (m Model) mint(f fence, d database) uint8 {
	if d == d2 && m.on(TokenJump) {
		return max(f.granted, jump) + 1
	}
	return f.granted + 1
}
