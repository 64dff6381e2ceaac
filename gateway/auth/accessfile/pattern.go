package accessfile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Template makes a name of claims: text, and claims in braces.
type Template struct {
	literals []string // before each claim, and after the last one
	claims   []string
}

// ParseTemplate reads a template, like "{namespace}/{name}".
func ParseTemplate(text string) (*Template, error) {
	t := &Template{}
	for {
		literal, rest, found := strings.Cut(text, "{")
		claim, after, closed := strings.Cut(rest, "}")
		if strings.Contains(literal, "}") || found && (!closed || claim == "" || strings.Contains(claim, "{")) {
			return nil, errors.New("principal must be text with claims in braces, like {sub}")
		}
		t.literals = append(t.literals, literal)
		if !found {
			break
		}
		t.claims = append(t.claims, claim)
		text = after
	}
	if len(t.claims) == 0 {
		return nil, errors.New("principal has no claim in braces: all would be the same principal")
	}
	return t, nil
}

// UnmarshalYAML is part of yaml.Unmarshaler.
func (t *Template) UnmarshalYAML(node *yaml.Node) error {
	var text string
	if err := node.Decode(&text); err != nil {
		return err
	}
	parsed, err := ParseTemplate(text)
	if err == nil {
		*t = *parsed
	}
	return err
}

// expand returns false unless each claim has exactly one value, which is not empty.
func (t *Template) expand(claims Claims) (name string, ok bool) {
	for i, claim := range t.claims {
		texts := claims.texts(claim)
		if len(texts) != 1 || texts[0] == "" {
			return "", false
		}
		name += t.literals[i] + texts[0]
	}
	return name + t.literals[len(t.claims)], true
}

// Glob is a pattern of a claim: * is any text without "/" and ":", ** is any text.
type Glob struct{ pattern *regexp.Regexp }

// ParseGlob reads a pattern.
func ParseGlob(text string) (Glob, error) {
	if len(text) > globMax || !utf8.ValidString(text) {
		return Glob{}, fmt.Errorf("a pattern must be UTF-8 of at most %d bytes", globMax)
	}
	expression := regexp.QuoteMeta(text)
	expression = strings.ReplaceAll(expression, `\*\*`, `.*`)
	expression = strings.ReplaceAll(expression, `\*`, `[^/:]*`)
	pattern, err := regexp.Compile(`\A(?s:` + expression + `)\z`)
	return Glob{pattern}, err
}

// UnmarshalYAML is part of yaml.Unmarshaler.
func (g *Glob) UnmarshalYAML(node *yaml.Node) error {
	var text string
	err := node.Decode(&text)
	if err == nil {
		*g, err = ParseGlob(text)
	}
	return err
}

// globMax bounds the length of a pattern, and so the size of its regular expression.
const globMax = 1000

func (g Glob) matchesAny(texts []string) bool {
	return slices.ContainsFunc(texts, g.pattern.MatchString)
}
