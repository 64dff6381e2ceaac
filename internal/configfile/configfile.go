// Package configfile reads and writes the flags of a command as a YAML file. A key is the name of a flag without its
// dashes, a value is what the flag takes; a flag that takes several values takes a list, too.
package configfile

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// Values are the values of flags as the file has them: a text, or a list of texts.
type Values map[string]any

// Read returns the values in a file. Its errors name the file, and the line and the key where they are about one.
func Read(path string, flags []*kong.Flag) (Values, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values, err := parse(text, flags)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

func parse(text []byte, flags []*kong.Flag) (Values, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	pairs := document.Content[0]
	if pairs.Kind != yaml.MappingNode {
		return nil, at(pairs, "it must have a key and a value on each line, like listen: 127.0.0.1:8080")
	}
	values := Values{}
	for i := 0; i < len(pairs.Content); i += 2 {
		key, value := pairs.Content[i], pairs.Content[i+1]
		flag := flagOf(flags, key.Value)
		switch {
		case flag == nil:
			return nil, at(key, "unknown key %q", key.Value)
		case values[key.Value] != nil:
			return nil, at(key, "the key %q is there twice", key.Value)
		}
		read, err := valueOf(flag, value)
		if err != nil {
			return nil, at(value, "%s: %w", key.Value, err)
		}
		values[key.Value] = read
	}
	return values, nil
}

func at(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{node.Line}, args...)...)
}

// own reports whether a flag is none of the command's settings.
func own(flag *kong.Flag) bool {
	return !flag.Hidden && !slices.Contains([]string{"help", "version", "config"}, flag.Name)
}

func flagOf(flags []*kong.Flag, name string) *kong.Flag {
	for _, flag := range flags {
		if flag.Name == name && own(flag) {
			return flag
		}
	}
	return nil
}

// valueOf returns a value that the flag takes.
func valueOf(flag *kong.Flag, node *yaml.Node) (any, error) {
	value, err := texts(flag, node)
	if err != nil {
		return nil, err
	}
	target := reflect.New(flag.Target.Type()).Elem()
	decoding := &kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(value, kong.FlagValueToken)}
	if err := flag.Mapper.Decode(decoding, target); err != nil {
		return nil, err
	}
	if text, ok := value.(string); ok && flag.Enum != "" && !flag.IsSlice() && !flag.EnumMap()[text] {
		return nil, fmt.Errorf("it must be one of %s, not %q", flag.Enum, text)
	}
	return value, nil
}

// texts is the text of a value, or a list of texts.
func texts(flag *kong.Flag, node *yaml.Node) (any, error) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, nil
	case node.Kind == yaml.SequenceNode && flag.IsSlice():
		items := make([]any, len(node.Content))
		for i, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, errors.New("its items must be texts or numbers")
			}
			items[i] = item.Value
		}
		return items, nil
	case flag.IsSlice():
		return nil, errors.New("it must be a list")
	}
	return nil, errors.New("it must be a single text or number")
}

// Write writes the values that flags have. A value that has a password is written as a comment without it, and so is a
// flag without a value: what is written can be read, and says the same but for the passwords.
func Write(w io.Writer, flags []*kong.Flag) error {
	for _, flag := range flags {
		if !own(flag) {
			continue
		}
		text, err := line(flag)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func line(flag *kong.Flag) (string, error) {
	values := shown(flag.Target)
	secret := false
	for i, value := range values {
		var redacted bool
		values[i], redacted = redact(value)
		secret = secret || redacted
	}
	var document any = values
	switch {
	case len(values) == 0 || !flag.IsSlice() && values[0] == "":
		return "# " + flag.Name + ":\n", nil
	case !flag.IsSlice():
		document = plain(flag.Target, values[0])
	}
	node := &yaml.Node{}
	if err := node.Encode(document); err != nil {
		return "", fmt.Errorf("%s: %w", flag.Name, err)
	}
	if node.Kind == yaml.SequenceNode {
		node.Style = yaml.FlowStyle
	}
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		{Kind: yaml.ScalarNode, Value: flag.Name}, node,
	}})
	if secret {
		return "# " + string(text), err
	}
	return string(text), err
}

// shown are the texts of a value: several for a list.
func shown(value reflect.Value) []string {
	if value.Kind() == reflect.Slice {
		var texts []string
		for i := range value.Len() {
			texts = append(texts, shown(value.Index(i))...)
		}
		return texts
	}
	switch value := value.Interface().(type) {
	case time.Duration:
		return []string{value.String()}
	case encoding.TextMarshaler:
		text, err := value.MarshalText()
		if err != nil {
			return nil
		}
		return []string{string(text)}
	}
	return []string{fmt.Sprint(value.Interface())}
}

// plain is a number or a truth value as such, and all else as its text.
func plain(value reflect.Value, text string) any {
	if _, isDuration := value.Interface().(time.Duration); isDuration || value.Kind() == reflect.String {
		return text
	}
	return value.Interface()
}

// redacted stands for a password.
const redacted = "xxxxx"

// setting is a password among the settings of a connection: of libpq's keywords, or of a URL's query.
var setting = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)

// userinfo is a password before the host of a URL.
var userinfo = regexp.MustCompile(`(://[^/?#:]*:)[^/?#]*(@)`)

// redact replaces the passwords of a connection, and reports whether there were any.
func redact(text string) (string, bool) {
	if strings.Contains(text, "://") && strings.Contains(text, "@") {
		if _, err := url.Parse(text); err != nil {
			return redacted, true // nobody knows which part is the password
		}
	}
	shown := userinfo.ReplaceAllString(text, "${1}"+redacted+"${2}")
	shown = setting.ReplaceAllString(shown, "${1}"+redacted)
	return shown, shown != text
}
