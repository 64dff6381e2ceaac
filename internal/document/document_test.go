package document

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/internal/printable"
)

type sample struct {
	Name  string          `json:"name"`
	Big   int64           `json:"big"`
	None  *string         `json:"none"`
	List  []string        `json:"list"`
	Empty map[string]int  `json:"empty"`
	Raw   json.RawMessage `json:"raw"`
}

// The fields of the YAML have the order of the JSON, and texts that look like other values stay texts.
func TestYAMLHasTheFieldsOfTheJSON(t *testing.T) {
	var out strings.Builder
	document := sample{
		Name: "yes", Big: 9007199254740991, List: []string{"0x1F", "a\nb", "\t\n", ""}, Empty: map[string]int{},
		Raw: json.RawMessage(`{"z":1.50,"a":[true,null],"emoji":"\ud83d\ude00"}`),
	}
	if err := YAML(&out, document); err != nil {
		t.Fatal(err)
	}
	const want = `name: "yes"
big: 9007199254740991
none: null
list:
  - "0x1F"
  - "a\nb"
  - "\t\n"
  - ""
empty: {}
raw:
  z: 1.50
  a:
    - true
    - null
  emoji: "\U0001F600"
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// Every text can be read back from the JSON and the YAML, and neither has a hidden character.
func TestDocumentsKeepEveryText(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile))
	rapid.Check(t, func(t *rapid.T) {
		document := map[string]string{text.Draw(t, "name"): text.Draw(t, "value")}
		for name, format := range map[string]struct {
			write func(io.Writer, any) error
			read  func([]byte, any) error
		}{"JSON": {JSON, json.Unmarshal}, "YAML": {YAML, yaml.Unmarshal}} {
			var out bytes.Buffer
			if err := format.write(&out, document); err != nil {
				t.Fatal(err)
			}
			var read map[string]string
			if err := format.read(out.Bytes(), &read); err != nil || !reflect.DeepEqual(read, document) {
				t.Fatalf("%s: %q was written as %q and read as %q (%v)", name, document, out.String(), read, err)
			}
			if hides(out.String()) {
				t.Fatalf("%s: %q has a hidden character", name, out.String())
			}
		}
	})
}

func hides(text string) bool {
	return strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), printable.Hidden)
}

// hostile would run commands, or end its quotes, if the quoting had a hole.
var hostile = []string{
	"it's", "$(echo owned)", "`echo owned`", "a\nb\n", "'; echo owned; '", `\'; echo owned #`, `"$HOME"`, "", " -n ", "*",
	"\\", "ä\u202e\x1b[2J", "a\u200b\U000e0041\ufe0f", "!!", "'\\''", "$'x'", "\r\t",
}

// A real shell that evaluates the assignments runs nothing else, and its variables have the values of the document.
func TestShellQuotesHostileValues(t *testing.T) {
	t.Parallel()
	for _, name := range hostile {
		var script strings.Builder
		raw, err := json.Marshal(map[string]string{"k": name})
		if err != nil {
			t.Fatal(err)
		}
		document := sample{Name: name, Big: 7, List: []string{name}, Raw: raw}
		if err := Shell(&script, document, func(field string) string { return "X_" + strings.ToUpper(field) }); err != nil {
			t.Fatal(err)
		}
		const show = `printf '%s|' "$X_NAME" "$X_BIG" "$X_NONE" "$X_LIST" "$X_EMPTY" "$X_RAW"; sh -c 'printf %s "$X_NAME"'`
		command := exec.CommandContext(t.Context(), "sh", "-euc", `eval "$1"; `+show, "sh", script.String())
		out, err := command.CombinedOutput()
		list, _ := json.Marshal([]string{name})
		var plainList, plainRaw bytes.Buffer
		for buffer, value := range map[*bytes.Buffer]any{&plainList: json.RawMessage(list), &plainRaw: json.RawMessage(raw)} {
			if err := JSON(buffer, value); err != nil {
				t.Fatal(err)
			}
		}
		want := name + "|7||" + strings.TrimSpace(plainList.String()) + "||" + strings.TrimSpace(plainRaw.String()) + "|" + name
		if err != nil || string(out) != want {
			t.Errorf("%q was evaluated as %q (%v), want %q; the script is %s", name, out, err, want, script.String())
		}
		if hides(script.String()) {
			t.Errorf("the script %q has a hidden character", script.String())
		}
	}
}

// A NUL, which no variable can have, is left out; what is not an object can't be written.
func TestShellLimits(t *testing.T) {
	var out strings.Builder
	if err := Shell(&out, map[string]string{"a": "x\x00y"}, strings.ToUpper); err != nil || out.String() != "export A='xy'\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	if err := Shell(&out, []string{"a"}, strings.ToUpper); err == nil {
		t.Error("an array was written as variables")
	}
}
