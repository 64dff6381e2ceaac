package redislease

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/store"
)

// Kind says what went wrong with a server, for metrics.
type Kind string

// The kinds of failures.
const (
	KindTimeout     Kind = "timeout"
	KindUnreachable Kind = "unreachable"
	KindTLS         Kind = "tls"
	KindBusy        Kind = "busy"
	KindAuth        Kind = "auth"
	KindPermission  Kind = "permission"
	KindWrongType   Kind = "wrong_type"
	KindFull        Kind = "full"
	KindReadOnly    Kind = "read_only"
	KindLoading     Kind = "loading"
	KindDown        Kind = "down"
	KindReplicas    Kind = "replicas"
	KindPersistence Kind = "persistence"
	KindRestarted   Kind = "restarted"
	KindOther       Kind = "other"
)

// Kinds are all kinds.
var Kinds = []Kind{
	KindTimeout, KindUnreachable, KindTLS, KindBusy, KindAuth, KindPermission, KindWrongType, KindFull, KindReadOnly,
	KindLoading, KindDown, KindReplicas, KindPersistence, KindRestarted, KindOther,
}

// kinds are the kinds of the codes with which Redis begins its errors.
var kinds = map[string]Kind{
	"NOAUTH": KindAuth, "WRONGPASS": KindAuth, "NOPERM": KindPermission, "WRONGTYPE": KindWrongType, "OOM": KindFull,
	"READONLY": KindReadOnly, "LOADING": KindLoading, "MASTERDOWN": KindDown, "CLUSTERDOWN": KindDown, "TRYAGAIN": KindDown,
	"BUSY": KindBusy, "NOREPLICAS": KindReplicas, "MISCONF": KindPersistence,
}

// advice says what to do about a kind that does not end by itself.
var advice = map[Kind]string{
	KindTLS:         "compare the scheme (redis or rediss) and the host of the URL with the server's certificate",
	KindAuth:        "correct the user and the password in the URL",
	KindPermission:  "give the user of the URL the rights that docs/other-locks.md lists",
	KindWrongType:   "another program keeps something else than a lock at the key: delete the key, or set a key prefix",
	KindFull:        "the server has reached its maxmemory: raise it, or delete other keys",
	KindReadOnly:    "the URL names a replica: name the master, or the Sentinels",
	KindPersistence: "the server can't write its snapshots: see its log",
}

// kindOf returns the kind of an error of go-redis.
func kindOf(err error) Kind {
	var answer redis.Error
	if errors.As(err, &answer) {
		text := answer.Error()
		code, _, _ := strings.Cut(text, " ")
		if kind, ok := kinds[code]; ok {
			return kind
		}
		switch {
		case strings.HasPrefix(text, "ERR max number of clients"):
			return KindBusy
		case strings.HasPrefix(text, "ERR The user executing the script can't"): // Redis 7.0 has no code for it
			return KindPermission
		}
		return KindOther
	}
	var network net.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &authority):
		return KindTLS
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return KindBusy
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return KindTimeout
	}
	return KindUnreachable
}

// Failure is a call that a server did not answer, or refused.
type Failure struct {
	Address string
	Kind    Kind
	Err     error
}

func (f *Failure) Error() string {
	text := fmt.Sprintf("redis %s: %s: %v", f.Address, f.Kind, f.Err)
	if advice[f.Kind] != "" {
		text += " (" + advice[f.Kind] + ")"
	}
	return text
}

// Unwrap returns the error of go-redis.
func (f *Failure) Unwrap() error { return f.Err }

// unavailable is the error where too few servers have answered, with what each of the others said.
func (l *Leases) unavailable(outcome store.Outcome, answers []answer[reply]) error {
	usable, silent := 0, slices.Clone(l.servers)
	var failures []error
	for _, a := range answers {
		silent = slices.DeleteFunc(silent, func(s *server) bool { return s == a.server })
		if a.err == nil {
			usable++
		} else {
			failures = append(failures, a.err)
		}
	}
	for _, s := range silent {
		failures = append(failures, &Failure{s.address, KindTimeout, context.DeadlineExceeded})
	}
	err := errors.Join(failures...)
	if all := len(l.servers); all > 1 {
		err = fmt.Errorf("%d of %d servers can be used for this, %d are needed: %w", usable, all, l.quorum(), err)
	}
	return l.failed(outcome, err)
}

// failed is an ErrUnavailable that is Redis's.
func (l *Leases) failed(outcome store.Outcome, err error) error {
	return &store.UnavailableError{Outcome: outcome, Err: &store.ProviderError{Provider: l.config.Provider, Err: err}}
}

// quorum is the number of servers that are more than half of them. Any two quorums have a server in common.
func quorum(of int) int { return of/2 + 1 }

// answer is what one server said to a call.
type answer[T any] struct {
	server *server
	value  T
	err    error
}

// ask calls the servers at the same time, each for no longer than the timeout. It returns the answers as soon as they are
// enough, or all. Calls that still run then end by themselves; running counts them.
func ask[T any](
	ctx context.Context, running *sync.WaitGroup, servers []*server, timeout time.Duration,
	call func(context.Context, *server) (T, error), enough func([]answer[T]) bool,
) []answer[T] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	came := make(chan answer[T], len(servers))
	var calls sync.WaitGroup
	for _, s := range servers {
		calls.Go(func() {
			value, err := call(ctx, s)
			came <- answer[T]{s, value, err}
		})
	}
	running.Go(func() {
		calls.Wait()
		cancel()
	})
	limit := time.NewTimer(2 * timeout) // of a call that does not heed its context
	defer limit.Stop()
	answers := make([]answer[T], 0, len(servers))
	for len(answers) < len(servers) && !enough(answers) {
		select {
		case a := <-came:
			answers = append(answers, a)
		case <-limit.C:
			return answers
		}
	}
	return answers
}

// all is the condition of ask that waits for every server.
func all[T any]([]answer[T]) bool { return false }

// decided returns the condition of ask that a quorum of all servers has said yes, or can't any more.
func decided[T any](of int, yes func(T) bool) func([]answer[T]) bool {
	return func(answers []answer[T]) bool {
		said := count(answers, yes)
		return said >= quorum(of) || said+of-len(answers) < quorum(of)
	}
}

// count returns how many servers gave an answer of which holds is true.
func count[T any](answers []answer[T], holds func(T) bool) int {
	n := 0
	for _, a := range answers {
		if a.err == nil && holds(a.value) {
			n++
		}
	}
	return n
}

// left is how long a lease still runs by the times that the servers have for it: 0 where a server does not have it, less
// than 0 where the server did not answer. A quorum must have it. known is false where the silent servers decide.
func left(times []time.Duration) (left time.Duration, known bool) {
	silent := 0
	for _, t := range times {
		if t < 0 {
			silent++
		}
	}
	sorted := slices.Clone(times)
	slices.Sort(sorted)
	slices.Reverse(sorted) // the longest first, the silent last
	need := quorum(len(times))
	certain := max(0, sorted[need-1])
	if need <= silent {
		return certain, false
	}
	possible := max(0, sorted[need-1-silent]) // if the silent had it for ever
	return certain, certain > 0 || possible == 0
}
