package spec

import (
	_ "embed" // the scenarios
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// names are the names in a text that stand for numbers which differ from run to run. "#2" is the second lease that was
// granted, as a token or as a lease_id; "#2+1" a token beside it; "#2x" a lease_id that is not its own; "$1" the first
// session.
type names struct {
	leases   []Lease
	sessions []uuid.UUID
}

// Scenarios are named operations that every provider must answer as the contract says. An empty line ends a scenario.
//
//go:embed testdata/provider.txt
var Scenarios string

// String is the text with the numbers as they are.
func (o Op) String() string { return names{}.op(o) }

func (n names) op(o Op) string {
	text := string(o.Kind)
	if o.Name != "" {
		text += " " + quoted(string(o.Name))
	}
	text += n.fields(o)
	for _, part := range o.Parts {
		text += " ; " + n.op(part)
	}
	return text
}

// String is the code and the fields that are set.
func (a Answer) String() string { return quoted(a.Code) + names{}.fields(a) }

// fields is what is not zero of a struct, each with a space before it.
func (n names) fields(of any) (text string) {
	fields := reflect.ValueOf(of)
	for i := range fields.NumField() {
		label, shown := fields.Type().Field(i).Tag.Lookup("op")
		if shown && !fields.Field(i).IsZero() {
			text += " " + label + "=" + n.show(fields.Field(i).Interface(), label)
		}
	}
	return text
}

// quoted is a text without spaces, or in quotes.
func quoted(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == ';' || r > '~' }) {
		return strconv.Quote(text)
	}
	return text
}

func (n names) show(value any, label string) string {
	switch value := value.(type) {
	case *int64:
		return strconv.FormatInt(*value, 10)
	case int64:
		if label == "token" || label == "newest" {
			return n.token(value)
		}
		return strconv.FormatInt(value, 10)
	case uuid.UUID:
		return n.id(value)
	case store.Policy:
		return quoted(policyText(value))
	case Record:
		return quoted(strings.TrimSpace(n.fields(value)))
	}
	return quoted(fmt.Sprint(value))
}

// token names a token after the lease that has it, or the nearest below.
func (n names) token(token int64) string {
	nearest := -1
	for i, lease := range n.leases {
		if lease.Token <= token && (nearest < 0 || lease.Token > n.leases[nearest].Token) {
			nearest = i
		}
	}
	switch {
	case nearest < 0:
		return strconv.FormatInt(token, 10)
	case n.leases[nearest].Token == token:
		return fmt.Sprintf("#%d", nearest+1)
	}
	return fmt.Sprintf("#%d+%d", nearest+1, token-n.leases[nearest].Token)
}

func (n names) id(id uuid.UUID) string {
	for i, lease := range n.leases {
		switch id {
		case lease.ID:
			return fmt.Sprintf("#%d", i+1)
		case WrongID(lease.ID):
			return fmt.Sprintf("#%dx", i+1)
		}
	}
	for i, session := range n.sessions {
		switch id {
		case session:
			return fmt.Sprintf("$%d", i+1)
		case WrongID(session):
			return fmt.Sprintf("$%dx", i+1)
		}
	}
	return id.String()
}

// WrongID is a lease_id that nobody has: it looks like one.
func WrongID(id uuid.UUID) uuid.UUID { return uuid.NewSHA1(id, nil) }

func policyText(p store.Policy) string {
	text := fmt.Sprintf("%s,%s", p.Rule, p.Authority)
	for _, flag := range []struct {
		on   bool
		name string
	}{{p.RequireLeaseID, "lease_id"}, {p.RequireLiveLease, "live"}, {p.RequirePrincipalOwner, "owner"},
		{p.MaxHold > 0, "max_hold:" + p.MaxHold.String()}} {
		if flag.on {
			text += "," + flag.name
		}
	}
	return text
}

func parsePolicy(text string) (p store.Policy, err error) {
	for i, word := range strings.Split(text, ",") {
		switch {
		case i == 0:
			p.Rule = store.Rule(word)
		case i == 1:
			p.Authority = store.Authority(word)
		case word == "lease_id":
			p.RequireLeaseID = true
		case word == "live":
			p.RequireLiveLease = true
		case word == "owner":
			p.RequirePrincipalOwner = true
		case strings.HasPrefix(word, "max_hold:"):
			p.MaxHold, err = time.ParseDuration(strings.TrimPrefix(word, "max_hold:"))
		default:
			err = fmt.Errorf("%q is not of a policy", word)
		}
	}
	return p, err
}

// ParseOp reads the text form of an operation. The state says which leases and sessions its names mean.
func ParseOp(text string, s State) (Op, error) { return s.names().parseOp(text) }

func (n names) parseOp(text string) (op Op, err error) {
	parts, err := split(text)
	for i, words := range parts {
		one := Op{Kind: Kind(words[0])}
		words = words[1:]
		if len(words) > 0 && !strings.Contains(words[0], "=") {
			one.Name, words = store.Name(words[0]), words[1:]
		}
		err = errors.Join(err, n.read(words, &one))
		if i == 0 {
			op = one
		} else {
			op.Parts = append(op.Parts, one)
		}
	}
	return op, err
}

func parseAnswer(text string) (answer Answer, err error) {
	parts, err := split(text)
	if err != nil {
		return answer, err
	}
	answer.Code = parts[0][0]
	err = names{}.read(parts[0][1:], &answer)
	return answer, err
}

// read sets the fields of a struct.
func (n names) read(words []string, target any) error {
	fields := reflect.ValueOf(target).Elem()
next:
	for _, word := range words {
		label, value, _ := strings.Cut(word, "=")
		for i := range fields.NumField() {
			if of, shown := fields.Type().Field(i).Tag.Lookup("op"); shown && of == label {
				if err := n.set(fields.Field(i), value); err != nil {
					return fmt.Errorf("%q: %w", word, err)
				}
				continue next
			}
		}
		return fmt.Errorf("%q is no field", word)
	}
	return nil
}

// split splits a text at " ; " and at spaces, but not within quotes, which it removes.
func split(text string) ([][]string, error) {
	parts := [][]string{{}}
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimLeft(rest, " ") {
		last := &parts[len(parts)-1]
		if strings.HasPrefix(rest, "; ") {
			parts, rest = append(parts, []string{}), rest[2:]
			continue
		}
		end := strings.IndexAny(rest, ` "`)
		word := ""
		switch {
		case end < 0:
			word, rest = rest, ""
		case rest[end] == ' ':
			word, rest = rest[:end], rest[end:]
		default:
			literal, err := strconv.QuotedPrefix(rest[end:])
			if err != nil {
				return nil, fmt.Errorf("a quote in %q does not end", text)
			}
			value, _ := strconv.Unquote(literal)
			word, rest = rest[:end]+value, rest[end+len(literal):]
		}
		*last = append(*last, word)
	}
	if len(parts[0]) == 0 {
		return nil, errors.New("an operation without a kind")
	}
	return parts, nil
}

func (n names) set(field reflect.Value, text string) error {
	switch target := field.Addr().Interface().(type) {
	case **int64:
		number, err := strconv.ParseInt(text, 10, 64)
		*target = &number
		return err
	case *int64:
		number, err := n.number(text)
		*target = number
		return err
	case *time.Duration:
		length, err := time.ParseDuration(text)
		*target = length
		return err
	case *uuid.UUID:
		id, err := n.parseID(text)
		*target = id
		return err
	case *store.Policy:
		policy, err := parsePolicy(text)
		*target = policy
		return err
	case *Record:
		parts, err := split(text)
		if err != nil {
			return err
		}
		return n.read(parts[0], target)
	case *bool:
		*target = text == "true"
		return nil
	case *int:
		number, err := strconv.Atoi(text)
		*target = number
		return err
	default:
		field.SetString(text)
		return nil
	}
}

func (n names) number(text string) (int64, error) {
	name, named := strings.CutPrefix(text, "#")
	if !named {
		return strconv.ParseInt(text, 10, 64)
	}
	name, off, _ := strings.Cut(name, "+")
	more, _ := strconv.ParseInt(off, 10, 64)
	lease, err := n.lease(name)
	return lease.Token + more, err
}

// ErrNoLease says that a text names a lease that was not granted.
var ErrNoLease = errors.New("no such lease")

func (n names) lease(text string) (Lease, error) {
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > len(n.leases) {
		return Lease{}, fmt.Errorf("%w: %q", ErrNoLease, text)
	}
	return n.leases[number-1], nil
}

func (n names) parseID(text string) (id uuid.UUID, err error) {
	name, wrong := strings.CutSuffix(text, "x")
	switch {
	case strings.HasPrefix(name, "#"):
		var lease Lease
		lease, err = n.lease(name[1:])
		id = lease.ID
	case strings.HasPrefix(name, "$"):
		number, failed := strconv.Atoi(name[1:])
		if failed != nil || number < 1 || number > len(n.sessions) {
			return id, fmt.Errorf("there is no session %q", name)
		}
		id = n.sessions[number-1]
	default:
		return uuid.Parse(text)
	}
	if wrong {
		id = WrongID(id)
	}
	return id, err
}
