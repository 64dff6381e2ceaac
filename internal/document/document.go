// Package document writes an answer of the API as JSON, as YAML, or as assignments for a shell. The names are those of
// the JSON in all three.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// JSON writes a document on one line.
func JSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
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
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return encoder.Close()
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
// lines is quoted, too: the library writes some that it can't read.
func yamlText(text string) (*yaml.Node, error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
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
