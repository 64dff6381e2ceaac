// Package api is the wire format of fencegate's HTTP API: the bodies of requests and answers, server-sent events, the
// error codes and the Fencing-Token header. The gateway and the Go SDK share it. It imports the standard library only.
//
// Times are RFC 3339 UTC with milliseconds, durations integers ending in _ms, tokens JSON integers below 2^53.
package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Time is a time.Time that is written as RFC 3339 UTC with milliseconds, and read from any RFC 3339 time.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z"

// AppendText appends the time as RFC 3339 UTC with milliseconds.
func (t Time) AppendText(out []byte) ([]byte, error) {
	return t.UTC().AppendFormat(out, timeLayout), nil
}

// MarshalText writes the time as RFC 3339 UTC with milliseconds.
func (t Time) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// MarshalJSON writes the time as a JSON string, RFC 3339 UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"` + timeLayout + `"`)), nil
}

// MaxToken is the greatest fencing token and the greatest sequence: JSON integers are exact below 2^53.
const MaxToken = 1<<53 - 1

const (
	// HeaderFencingToken carries the token of a write, "34" or "34.2" with a sequence.
	HeaderFencingToken = "Fencing-Token"
	// HeaderFencingTokenX is accepted in its place.
	HeaderFencingTokenX = "X-Fencing-Token"
	// HeaderLeaseID carries the lease_id, if a policy or the writer wants it checked.
	HeaderLeaseID = "Lease-Id"
)

// ErrInvalidToken reports a text that is not a fencing token.
var ErrInvalidToken = errors.New("not a fencing token")

// TokenTooGreat says what to do with a number that does not fit. ZooKeeper's and other services' have 64 bits.
const TokenTooGreat = "subtract a constant from another service's greater numbers" //nolint:gosec // no credential

// FencingToken is a token and, for a numbered write, its sequence.
type FencingToken struct {
	Token    int64
	Sequence *int64
}

// ParseFencingToken reads "34" or "34.2". The token is 1 to 2^53-1, the sequence 0 to 2^53-1, both decimal without
// signs and leading zeros. It returns ErrInvalidToken, naming the limit that was passed.
func ParseFencingToken(text string) (FencingToken, error) {
	head, tail, numbered := strings.Cut(text, ".")
	token, err := parseDecimal(head)
	if err != nil || token == 0 {
		advice := ""
		if head != "" && head[0] != '0' && strings.Trim(head, "0123456789") == "" {
			advice = "; " + TokenTooGreat
		}
		return FencingToken{}, fmt.Errorf("%w: %q: the token is a decimal integer from 1 to 2^53-1%s",
			ErrInvalidToken, clip(text), advice)
	}
	if !numbered {
		return FencingToken{Token: token}, nil
	}
	sequence, err := parseDecimal(tail)
	if err != nil {
		return FencingToken{}, fmt.Errorf("%w: %q: the sequence after the dot is a decimal integer from 0 to 2^53-1",
			ErrInvalidToken, clip(text))
	}
	return FencingToken{Token: token, Sequence: &sequence}, nil
}

// String is the form that ParseFencingToken reads.
func (t FencingToken) String() string {
	text := strconv.FormatInt(t.Token, 10)
	if t.Sequence != nil {
		text += "." + strconv.FormatInt(*t.Sequence, 10)
	}
	return text
}

func parseDecimal(text string) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	var plain [20]byte // without a sign or leading zeros
	if err != nil || number < 0 || number > MaxToken || string(strconv.AppendInt(plain[:0], number, 10)) != text {
		return 0, ErrInvalidToken
	}
	return number, nil
}

// clip keeps a message short, whatever was sent.
func clip(text string) string {
	const shown = 40
	if len(text) > shown {
		return text[:shown] + "…"
	}
	return text
}
