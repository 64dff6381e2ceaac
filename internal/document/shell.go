package document

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Shell writes an export of a variable for each field of a document, for a POSIX shell's eval. variable returns the name
// of a field's variable. Values can't end their quotes, whatever they are. A field that is null is an empty text; an
// array or an object is its JSON. The document must be an object.
func Shell(w io.Writer, document any, variable func(field string) string) error {
	decoder, err := decoderOf(document)
	if err != nil {
		return err
	}
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return fmt.Errorf("a document of the type %T can't be written as variables", document)
	}
	for decoder.More() {
		field, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "export %s=%s\n", variable(fmt.Sprint(field)), quoted(plain(value))); err != nil {
			return err
		}
	}
	return nil
}

// plain is the text of a JSON string, and the JSON of all else.
func plain(value json.RawMessage) string {
	var text *string
	if err := json.Unmarshal(value, &text); err != nil {
		return string(value)
	}
	if text == nil {
		return ""
	}
	return *text
}

// quoted is one word of a shell. No variable can have a NUL, so it is left out. printf makes hidden characters.
func quoted(text string) string {
	text = strings.NewReplacer("'", `'\''`, "\x00", "").Replace(text)
	return "'" + escaped(text, func(r rune) string {
		var octal strings.Builder
		for _, each := range []byte(string(r)) {
			fmt.Fprintf(&octal, `\%03o`, each)
		}
		return `'"$(printf '` + octal.String() + `')"'`
	}) + "'"
}
