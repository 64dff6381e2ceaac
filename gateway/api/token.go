package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
