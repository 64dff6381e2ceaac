package spec

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
)

// WriteCalls writes calls, a line each.
func WriteCalls(to io.Writer, calls []Call) error {
	text := &strings.Builder{}
	for _, call := range calls {
		fmt.Fprintln(text, call)
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// ReadCalls reads lines of calls. Lines that begin with # are comments.
func ReadCalls(from io.Reader) ([]Call, error) {
	var calls []Call
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<24)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		call, err := ParseCall(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		calls = append(calls, call)
	}
	return calls, lines.Err()
}

// MarshalText writes the line, also as a text of JSON.
func (c Call) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads it.
func (c *Call) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCall(string(text))
	return err
}

// Recorder keeps the calls of clients, by their names, until they are taken. It is safe for concurrent use.
type Recorder struct {
	begun time.Time
	mu    sync.Mutex
	calls map[store.Name][]Call
}

// NewRecorder returns an empty recorder, whose clock begins now.
func NewRecorder() *Recorder { return &Recorder{begun: time.Now(), calls: map[store.Name][]Call{}} }

// Now is a time for calls.
func (r *Recorder) Now() int64 { return time.Since(r.begun).Nanoseconds() }

// Add keeps a call.
func (r *Recorder) Add(call Call) {
	name := call.Op.Name
	if len(call.Op.Parts) > 0 {
		name = call.Op.Parts[0].Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[name] = append(r.calls[name], call)
}

// Take returns the calls of a name, and forgets them.
func (r *Recorder) Take(name store.Name) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls[name]
	delete(r.calls, name)
	return calls
}

// Of returns a recorder with the calls of some names, and with those of none, and the same clock.
func (r *Recorder) Of(some func(store.Name) bool) *Recorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := &Recorder{begun: r.begun, calls: map[store.Name][]Call{}}
	for name, calls := range r.calls {
		if name == "" || some(name) {
			of.calls[name] = slices.Clone(calls)
		}
	}
	return of
}

// Calls returns all calls that are kept, in the order in which they were sent.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(func(yield func(Call) bool) {
		for _, calls := range r.calls {
			for _, call := range calls {
				if !yield(call) {
					return
				}
			}
		}
	}, bySent)
}

// Log is where calls are recorded.
type Log interface {
	Now() int64
	Add(call Call)
}

// MakeCall makes a call and records it. The error is that of perform.
func MakeCall(in Log, client int, op Op, perform func() (Answer, Choice, error)) (call Call, err error) {
	call = Call{Client: client, Op: op, Sent: in.Now()}
	call.Answer, call.Chosen, err = perform()
	if call.Answered = in.Now(); call.Answer.Code == CodeUnknown {
		call.Answered = Never
	}
	in.Add(call)
	return call, err
}

func bySent(a, b Call) int { return cmp.Compare(a.Sent, b.Sent) }
