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
