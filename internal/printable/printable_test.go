package printable

import "testing"

// Characters that steer a terminal, reorder text, or are not seen are replaced when they are printed, and no name has
// them.
func TestHiddenCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"größer":      "größer",
		"日本 語":        "日本 語",
		"a\x1b[2J\n":  "a�[2J�",
		"a\u202eb":    "a�b", // right-to-left override
		"a\u2066b":    "a�b", // isolate
		"a\u200bb":    "a�b", // zero-width space
		"a\u200db":    "a�b", // zero-width joiner
		"a\ufeffb":    "a�b", // zero-width no-break space
		"a\u00adb":    "a�b", // soft hyphen
		"a\ufe0fb":    "a�b", // variation selector
		"a\u3164b":    "a�b", // Hangul filler
		"a\u2028b":    "a�b", // line separator
		"a\U000e0041": "a�",  // tag
		"a\u00a0b":    "a b",
		"a\tb":        "a b",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
		if fit := IndexUnfit(text) < 0; fit != (text == want) {
			t.Errorf("%q is fit for a name: %t, want %t", text, fit, text == want)
		}
	}
	if at := IndexUnfit("ab\xff"); at != 2 {
		t.Errorf("invalid UTF-8 is found at byte %d, want 2", at)
	}
}
