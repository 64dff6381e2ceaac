package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

func TestTokenErrorsNameTheLimit(t *testing.T) {
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

// Times are written in UTC with milliseconds, and read in any form of RFC 3339.
func TestTime(t *testing.T) {
	east := time.FixedZone("east", 2*60*60)
	for text, instant := range map[string]time.Time{
		`"2026-01-02T03:04:05.678Z"`: time.Date(2026, 1, 2, 5, 4, 5, 678_999_999, east), // rounded down
		`"2026-01-02T03:04:05.000Z"`: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		`"0001-01-01T00:00:00.000Z"`: {},
	} {
		written, err := json.Marshal(api.Time{Time: instant})
		if err != nil || string(written) != text {
			t.Errorf("%s was written %s, want %s, %v", instant, written, text, err)
		}
		asKey, err := json.Marshal(map[api.Time]int{{Time: instant}: 1})
		if err != nil || string(asKey) != "{"+text+":1}" {
			t.Errorf("as a key: %s, %v", asKey, err)
		}
		var read api.Time
		if err := json.Unmarshal(written, &read); err != nil || !read.Equal(instant.Truncate(time.Millisecond)) {
			t.Errorf("%s was read as %s, %v", written, read, err)
		}
	}
	var read api.Time
	want := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	err := json.Unmarshal([]byte(`"2026-01-02T05:04:05.678901+02:00"`), &read)
	if err != nil || !read.Equal(want) {
		t.Errorf("the time in another zone was read as %s (%v), want %s", read, err, want)
	}
	for _, text := range []string{`"yesterday"`, `1767323045`, `{}`, `""`} {
		if err := json.Unmarshal([]byte(text), &read); err == nil {
			t.Errorf("%s was taken for %s", text, read)
		}
	}
}

func TestProblemIsAnError(t *testing.T) {
	err := fmt.Errorf("put: %w", &api.Problem{Status: 409, Code: api.CodeLockHeld, Detail: "Try again."})
	var problem *api.Problem
	if !errors.As(err, &problem) || err.Error() != "put: lock_held: Try again." {
		t.Errorf("the error is %q", err)
	}
	if text := (&api.Problem{Status: 409, Code: api.CodeLockHeld}).Error(); text != "lock_held: Conflict" {
		t.Errorf("without a detail it is %q", text)
	}
}

// Absent fields are left out, but fields that are 0 are written: version 0 means that there is no record.
func TestProblemFields(t *testing.T) {
	zero, first := int64(0), 0
	written, err := json.Marshal(api.Problem{
		Code: api.CodeVersionMismatch, Version: &zero, LastToken: &zero, Op: &first, QueueLength: &first,
		RecommendedRetryMS: &zero,
	})
	const want = `{"type":"","title":"","status":0,"detail":"","code":"version_mismatch","retryable":false,` +
		`"last_token":0,"version":0,"op":0,"queue_length":0,"recommended_retry_ms":0}`
	if err != nil || string(written) != want {
		t.Errorf("written: %s, %v, want %s", written, err, want)
	}
}
