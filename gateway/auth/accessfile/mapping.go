package accessfile

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/store"
)

// Mapping says which principals claims have, and what these may do. Of a certificate, its names are the claims.
type Mapping struct {
	Principal   *Template `yaml:"principal"`
	Rules       []Rule    `yaml:"rules"`
	GrantsClaim string    `yaml:"grants_claim"` // has grants besides those of the rules

	prefix string // of all principals
}

// Rule gives grants to all whose claims match.
type Rule struct {
	When   map[string]Glob `yaml:"when"` // all of them must match
	Grants []string        `yaml:"grants"`

	grants []access.Grant
}

// Why claims have no principal.
var (
	ErrNoName = errors.New("no claim yields a usable principal name")
	ErrGrants = errors.New("the claim of the grants can't be read")
)

func (m *Mapping) check(prefix, principal string) (err error) {
	m.prefix = prefix + ":"
	if m.Principal == nil {
		m.Principal, err = ParseTemplate(principal)
		if err != nil {
			return err
		}
	}
	if len(m.Rules) == 0 && m.GrantsClaim == "" {
		return errors.New("it needs rules or a grants_claim")
	}
	for i := range m.Rules {
		if err := m.Rules[i].check(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (r *Rule) check() (err error) {
	if len(r.When) == 0 || len(r.Grants) == 0 {
		return errors.New(`it needs when and grants; for every token: when: {sub: "**"}`)
	}
	r.grants, err = parseGrants(r.Grants)
	return err
}

func parseGrants(texts []string) ([]access.Grant, error) {
	grants, err := access.ParseAll(texts)
	if err != nil {
		return nil, err
	}
	if len(grants) > store.KeyGrantsMax {
		return nil, fmt.Errorf("there are %d grants, the limit is %d", len(grants), store.KeyGrantsMax)
	}
	for _, grant := range grants {
		if grant.Prefix == access.AllNames {
			continue
		}
		if _, err := store.ParseName("grant", grant.Prefix); err != nil {
			return nil, fmt.Errorf("grants: %w", err)
		}
	}
	return grants, nil
}

// Map returns the principal of claims. It has no grants if no rule matches. Map returns ErrNoName or ErrGrants.
func (m *Mapping) Map(claims Claims, kind access.Kind) (*access.Principal, error) {
	name, ok := m.Principal.expand(claims)
	name = m.prefix + name
	if !ok || len(name) > store.PrincipalMax || printable.IndexUnfit(name) >= 0 {
		return nil, ErrNoName // a shortened name could be another's
	}
	var grants []access.Grant
	for _, rule := range m.Rules {
		if rule.matches(claims) {
			grants = append(grants, rule.grants...)
		}
	}
	if m.GrantsClaim != "" {
		given, err := parseGrants(claims.words(m.GrantsClaim))
		if err != nil {
			return nil, ErrGrants
		}
		grants = append(grants, given...)
	}
	return access.New(name, kind, grants), nil
}

func (r *Rule) matches(claims Claims) bool {
	for claim, glob := range r.When {
		if !glob.matchesAny(claims.texts(claim)) {
			return false
		}
	}
	return true
}

func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

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
