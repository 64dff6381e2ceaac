package callfile

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// line is a call as text: what was asked for, " -> ", the answer, and for a lease " ! " with its times.
type line struct{ text []byte }

// line begins the line of a call that returned an error or not. One whose outcome is unknown was never answered. Its
// times are nanoseconds since 1970; within a file they only rise, whatever is done to the machine's clock.
func (c Call) line(kind string, name store.Name, err error) *line {
	l := &line{make([]byte, 0, 512)}
	l.text = append(l.text, "0 "...)
	l.text = append(strconv.AppendInt(l.text, c.recorder.began.UnixNano()+c.sent.Nanoseconds(), 10), '-')
	var unavailable *store.UnavailableError
	if errors.As(err, &unavailable) && unavailable.Outcome == store.OutcomeUnknown {
		l.text = append(l.text, "never"...)
	} else {
		l.text = strconv.AppendInt(l.text, c.recorder.began.UnixNano()+time.Since(c.recorder.began).Nanoseconds(), 10)
	}
	l.word(kind)
	if name != "" {
		l.word(string(name))
	}
	return l
}

// word appends a text without spaces, or in quotes.
func (l *line) word(text string) {
	l.text = append(l.text, ' ')
	l.quoted(text)
}

func (l *line) quoted(text string) {
	plain := text != ""
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] > ' ' && text[i] <= '~' && text[i] != '"' && text[i] != ';'
	}
	if !plain {
		l.text = strconv.AppendQuote(l.text, text)
		return
	}
	l.text = append(l.text, text...)
}

// field appends what is not empty, integer what is not 0, and id the stand-in for what is not zero.
func (l *line) field(label, text string) {
	if text != "" {
		l.text = append(append(append(l.text, ' '), label...), '=')
		l.quoted(text)
	}
}

func (l *line) integer(label string, number int64) {
	if number != 0 {
		l.field(label, strconv.FormatInt(number, 10))
	}
}

func (l *line) id(label string, id uuid.UUID) {
	if id != uuid.Nil {
		l.field(label, StandIn(id).String())
	}
}

// answer ends what was asked for. A code that is no word is that of an error.
func (l *line) answer(code string, err error) (answered bool) {
	l.text = append(l.text, " ->"...)
	if err == nil {
		l.word(code)
		return true
	}
	var held *store.HeldError
	var lost *store.LostError
	var rejected *store.RejectedError
	var unavailable *store.UnavailableError
	switch {
	case errors.As(err, &held):
		l.word("held_by_another")
		l.field("owner", held.OwnerID)
	case errors.As(err, &lost):
		l.word("lost")
		l.field("reason", lost.Reason)
	case errors.As(err, &rejected):
		l.word(string(rejected.Verdict))
		l.field("reason", rejected.Reason)
		l.integer("version", rejected.Version)
		l.integer("granted_token", rejected.GrantedToken)
		l.integer("last_token", rejected.LastToken)
		l.integer("last_sequence", rejected.LastSequence)
	case errors.As(err, &unavailable) && unavailable.Outcome == store.OutcomeUnknown:
		l.word("unknown")
	case errors.As(err, &unavailable):
		l.word("not_applied")
	case errors.Is(err, store.ErrNotFound):
		l.word("not_found")
	default:
		l.word("refused")
	}
	return false
}

// lease is an answer with a lease, and what was chosen for it.
func (l *line) lease(code string, lease store.Lease, err error) {
	if !l.answer(code, err) {
		return
	}
	l.integer("token", lease.Token)
	l.id("id", lease.ID)
	l.field("owner", lease.OwnerID)
	l.field("lease", string(lease.Mode)+","+string(lease.Scope))
	l.integer("expires", lease.ExpiresAt.UnixMicro())
	l.text = append(l.text, " !"...)
	l.integer("token", lease.Token)
	l.id("id", lease.ID)
	if !lease.GrantedAt.IsZero() {
		l.integer("granted_at", lease.GrantedAt.UnixMicro())
	}
	l.integer("until", lease.ExpiresAt.UnixMicro())
}

func (l *line) ref(ref store.LeaseRef) {
	l.field("owner", ref.OwnerID)
	l.integer("token", ref.Token)
	l.id("lease_id", ref.ID)
}

func (l *line) token(token store.WriteToken) {
	l.integer("token", token.Token)
	if token.Sequence != nil {
		l.field("sequence", strconv.FormatInt(*token.Sequence, 10))
	}
	if token.LeaseID != nil {
		l.id("lease_id", *token.LeaseID)
	}
}

func (l *line) operation(op store.Operation) {
	l.field("key", string(op.Key))
	if op.Kind == store.Put {
		l.field("type", op.ContentType)
		l.field("value", strconv.FormatUint(sum(op.Value), 16)) // tells contents apart
	}
	if op.Expect != nil {
		l.field("expect", strconv.FormatInt(*op.Expect, 10))
	}
}

// end queues the line.
func (c Call) end(l *line) {
	select {
	case c.recorder.lines <- append(l.text, '\n'):
	default:
		c.recorder.left.Add(1)
	}
}

// Acquired records an acquire. It, like the others, does nothing if the call is not recorded.
func (c Call) Acquired(request *store.AcquireRequest, lease store.Lease, err error) {
	if c.recorder == nil {
		return
	}
	l := c.line("acquire", request.Lock, err)
	l.field("owner", request.OwnerID)
	l.field("request", request.RequestID)
	l.field("mode", string(request.Mode))
	l.field("scope", string(request.Scope))
	if request.TTL != 0 {
		l.field("ttl", request.TTL.String())
	}
	if request.Wait != 0 {
		l.field("wait", request.Wait.String())
	}
	l.id("session", request.SessionID)
	l.integer("newest_token", request.NewestToken)
	l.lease("granted", lease, err)
	c.end(l)
}

// Renewed records a renewal.
func (c Call) Renewed(ref store.LeaseRef, ttl time.Duration, lease store.Lease, err error) {
	if c.recorder == nil {
		return
	}
	l := c.line("renew", ref.Lock, err)
	if ttl != 0 {
		l.field("ttl", ttl.String())
	}
	l.ref(ref)
	l.lease("renewed", lease, err)
	c.end(l)
}

// Released records a release.
func (c Call) Released(ref store.LeaseRef, err error) {
	if c.recorder == nil {
		return
	}
	l := c.line("release", ref.Lock, err)
	l.ref(ref)
	l.answer("released", err)
	c.end(l)
}

// Broken records that a lock was broken.
func (c Call) Broken(lock store.Name, lease store.Lease, err error) {
	if c.recorder == nil {
		return
	}
	l := c.line("break", lock, err)
	l.lease("broken", lease, err)
	c.end(l)
}

// SessionEnded records the end of a session.
func (c Call) SessionEnded(id uuid.UUID, err error) {
	if c.recorder == nil {
		return
	}
	l := c.line("end-session", "", err)
	l.id("session", id)
	l.answer("released", err)
	c.end(l)
}

// Wrote records a write.
func (c Call) Wrote(write store.Write, result store.Result, err error) {
	if c.recorder == nil {
		return
	}
	if err == nil {
		err = result.Err
	}
	l := c.line(string(write.Kind), write.Resource, err)
	l.token(write.WriteToken)
	l.operation(write.Operation)
	if l.answer("admitted", err) {
		l.integer("version", result.Version)
		l.flag("created", result.Created)
		l.flag("replayed", result.Replayed)
	}
	c.end(l)
}

func (l *line) flag(label string, on bool) {
	if on {
		l.field(label, "true")
	}
}

// Transacted records a transaction, with its operations on records.
func (c Call) Transacted(transaction store.Transaction, result store.TransactionResult, err error) {
	if c.recorder == nil {
		return
	}
	l := c.line("transact", "", err)
	for _, token := range transaction.Tokens {
		l.text = append(l.text, " ; token"...)
		l.word(string(token.Resource))
		l.token(token)
	}
	for _, op := range transaction.Operations {
		l.text = append(append(l.text, " ; "...), op.Kind...)
		l.word(string(op.Resource))
		l.operation(op.Operation)
	}
	if l.answer("admitted", err) {
		versions := make([]string, len(result.Versions))
		for i, version := range result.Versions {
			versions[i] = strconv.FormatInt(version, 10)
		}
		l.field("versions", strings.Join(versions, " "))
		l.flag("replayed", result.Replayed)
	}
	c.end(l)
}
