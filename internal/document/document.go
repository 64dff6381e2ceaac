// Package document writes an answer of the API as JSON, as YAML, or as assignments for a shell. The names are those of
// the JSON in all three.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/printable"
)

// JSON writes a document on one line.
func JSON(w io.Writer, document any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	_, err := io.WriteString(w, escaped(text.String(), func(r rune) string {
		if first, second := utf16.EncodeRune(r); first != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, first, second)
		}
		return fmt.Sprintf(`\u%04x`, r)
	}))
	return err
}

// escaped writes hidden characters, of which only texts have any, so that they can't deceive who reads the document.
func escaped(document string, as func(rune) string) string {
	var text strings.Builder
	for _, r := range document {
		if r != '\n' && printable.Hidden(r) {
			text.WriteString(as(r))
		} else {
			text.WriteRune(r)
		}
	}
	return text.String()
}

// YAML writes a document in block style, with the fields in the order of its JSON.
func YAML(w io.Writer, document any) error {
	decoder, err := decoderOf(document)
	if err != nil {
		return err
	}
	node, err := yamlNode(decoder)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node), encoder.Close()); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = io.WriteString(w, escaped(text.String(), func(r rune) string { return fmt.Sprintf(`\U%08X`, r) }))
	return err
}

// decoderOf reads the JSON of a document. Numbers keep all their digits.
func decoderOf(document any) (*json.Decoder, error) {
	var text bytes.Buffer
	if err := JSON(&text, document); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(&text)
	decoder.UseNumber()
	return decoder, nil
}

// yamlNode reads the next value. It keeps the order of fields, which a map would lose.
func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		return yamlParts(decoder, token)
	case string:
		return yamlText(token)
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil
}

// yamlText is quoted where readers of YAML 1.1 or 1.2 would take it for something else, such as yes. A text of several
// lines, or with a hidden character, is quoted, too: the library writes some that it can't read.
func yamlText(text string) (*yaml.Node, error) {
	if strings.ContainsFunc(text, printable.Hidden) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}, nil
	}
	node := new(yaml.Node)
	err := node.Encode(text)
	return node, err
}

// yamlParts reads the rest of an array, or of an object, whose names and values take turns.
func yamlParts(decoder *json.Decoder, opening json.Delim) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	if opening == '{' {
		node.Kind = yaml.MappingNode
	}
	for decoder.More() {
		part, err := yamlNode(decoder)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, part)
	}
	_, err := decoder.Token()
	return node, err
}

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
