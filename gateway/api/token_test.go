package api_test

import (
	"errors"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestParseFencingToken(t *testing.T) {
	sequence := func(number int64) *int64 { return &number }
	for text, want := range map[string]api.FencingToken{
		"1": {Token: 1}, "34.2": {Token: 34, Sequence: sequence(2)}, "34.0": {Token: 34, Sequence: sequence(0)},
		"9007199254740991.9007199254740991": {Token: api.MaxToken, Sequence: sequence(api.MaxToken)},
	} {
		if got, err := api.ParseFencingToken(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q was read as %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, limit := range map[string]string{
		"34.": "from 0 to", "34.9007199254740992": "from 0 to", "0.1": "from 1 to", strings.Repeat("9", 1000): "from 1 to",
	} {
		_, err := api.ParseFencingToken(text)
		if err == nil || !strings.Contains(err.Error(), limit) || len(err.Error()) > 200 {
			t.Errorf("%.20q: the error is %q, want %q in it", text, err, limit)
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
		"34", "34.2", "34.0", "9007199254740991", "9007199254740992", "9007199254740991.9007199254740991", "", "0", "-1",
		"+1", "1e3", "34.", ".2", "34.-1", "34.2.1", "034", "34.02", " 34", "34 ", "34\n", "34.2\n", "3_4", "0x22", "३४",
		"３４", "34,2", "9223372036854775808", "18446744073709551617", "34.\x00", "34.9007199254740992", "1.0?", ".", "0.1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := api.ParseFencingToken(text)
		if (err == nil) != isToken(text) {
			t.Fatalf("%q is a token: %v, want %v", text, err == nil, isToken(text))
		}
		if err != nil {
			if !errors.Is(err, api.ErrInvalidToken) || token != (api.FencingToken{}) {
				t.Errorf("%q: %+v, %v, want no token and ErrInvalidToken", text, token, err)
			}
			return
		}
		if token.String() != text || token.Token < 1 || token.Token > api.MaxToken {
			t.Errorf("%q was taken for %+v, which is written %q", text, token, token)
		}
	})
}
