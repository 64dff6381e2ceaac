package configfile

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

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
