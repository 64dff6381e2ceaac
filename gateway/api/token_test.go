package api_test

import (
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestParseFencingToken(t *testing.T) {
	sequence := func(number int64) *int64 { return &number }
	for text, want := range map[string]api.FencingToken{
		"1": {Token: 1}, "34": {Token: 34}, "34.2": {Token: 34, Sequence: sequence(2)}, "34.0": {Token: 34, Sequence: sequence(0)},
		"9007199254740991":                  {Token: api.MaxToken},
		"9007199254740991.9007199254740991": {Token: api.MaxToken, Sequence: sequence(api.MaxToken)},
	} {
		got, err := api.ParseFencingToken(text)
		if err != nil || got.Token != want.Token || (got.Sequence == nil) != (want.Sequence == nil) || got.Sequence != nil && *got.Sequence != *want.Sequence {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%q was written as %q", text, got)
		}
	}
	for text, limit := range map[string]string{
		"": "from 1 to", "0": "from 1 to", "-1": "from 1 to", "+1": "from 1 to", "1e3": "from 1 to", "1.0?": "from 0 to", "9007199254740992": "from 1 to",
		"9223372036854775808": "from 1 to", "34.": "from 0 to", "34.-1": "from 0 to", "34.2.1": "from 0 to", "034": "from 1 to", "34.02": "from 0 to",
		" 34": "from 1 to", "34 ": "from 1 to", "34.2\n": "from 0 to", ".2": "from 1 to", ".": "from 1 to", "0.1": "from 1 to", "３４": "from 1 to", "3_4": "from 1 to",
		"34.9007199254740992": "from 0 to", strings.Repeat("9", 1000): "from 1 to",
	} {
		got, err := api.ParseFencingToken(text)
		if !errors.Is(err, api.ErrInvalidToken) || got != (api.FencingToken{}) {
			t.Errorf("%q was taken for %+v, %v", text, got, err)
		} else if !strings.Contains(err.Error(), limit) || len(err.Error()) > 200 {
			t.Errorf("%q: the error says %q, want %q in it", text, err, limit)
		}
	}
}

// tokenForm is the grammar of a token, but for its limits.
var tokenForm = regexp.MustCompile(`^([1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?$`)

// isToken is the reference: by a regular expression and numbers of any size.
func isToken(text string) bool {
	match := tokenForm.FindStringSubmatch(text)
	if match == nil {
		return false
	}
	greatest := big.NewInt(1<<53 - 1)
	for _, digits := range match[1:] {
		number, ok := new(big.Int).SetString(digits, 10)
		if digits != "" && (!ok || number.Cmp(greatest) > 0) {
			return false
		}
	}
	return true
}

func FuzzParseFencingToken(f *testing.F) {
	for _, text := range []string{
		"34", "34.2", "34.0", "9007199254740991", "9007199254740992", "9007199254740991.9007199254740991", "", "0", "-1", "+1", "1e3", "34.", ".2", "34.-1", "34.2.1",
		"034", "34.02", " 34", "34 ", "34\n", "3_4", "0x22", "३४", "34,2", "9223372036854775808", "18446744073709551617", "34.\x00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := api.ParseFencingToken(text)
		if (err == nil) != isToken(text) {
			t.Fatalf("%q is a token: %v, want %v", text, err == nil, isToken(text))
		}
		if err != nil {
			if !errors.Is(err, api.ErrInvalidToken) {
				t.Errorf("%q: %v is not ErrInvalidToken", text, err)
			}
			return
		}
		if token.String() != text || token.Token < 1 || token.Token > api.MaxToken {
			t.Errorf("%q was taken for %+v, which is written %q", text, token, token)
		}
	})
}
