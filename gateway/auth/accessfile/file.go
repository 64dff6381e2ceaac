// Package accessfile reads the file that says which principals tokens and client certificates have, and what these may
// do. It does no I/O.
package accessfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/printable"
)

const (
	// BytesMax is the size of a file, at most.
	BytesMax = 1 << 20
	// LeewayMax is the difference of clocks that an issuer may be allowed, at most.
	LeewayMax = 5 * time.Minute

	leewayDefault = 30 * time.Second
	// certificateName begins the principals of certificates, as the name of an issuer begins those of its tokens.
	certificateName = "certificate"
)

// File is what an access file says.
type File struct {
	Issuers      []*Issuer `yaml:"issuers"`
	Certificates *Mapping  `yaml:"certificates"`
}

// Issuer is a service that issues tokens.
type Issuer struct {
	Name      string         `yaml:"name"`      // begins the names of its principals
	Issuer    string         `yaml:"issuer"`    // the claim iss
	Audiences []string       `yaml:"audiences"` // the claim aud has one of them
	Leeway    *time.Duration `yaml:"leeway"`    // of clocks; never nil after Parse
	SignIn    *SignIn        `yaml:"sign_in"`   // nil: users of browsers can't sign in by it
	Source    `yaml:",inline"`
	Mapping   `yaml:",inline"`
}

// Source says where the keys of an issuer are. Without a URL or a file, OpenID Connect Discovery finds them.
type Source struct {
	JWKSURL         string `yaml:"jwks_url"`
	JWKSFile        string `yaml:"jwks_file"`
	CAFile          string `yaml:"ca_file"`           // the authority of the servers' certificates; "": the system's
	BearerTokenFile string `yaml:"bearer_token_file"` // the credential that the servers want; "": none
}

// Parse reads a file. Its errors say what is wrong and where.
func Parse(text []byte) (*File, error) {
	if len(text) > BytesMax {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", len(text), BytesMax)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	file := &File{}
	if err := decoder.Decode(file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one YAML document")
	}
	if err := file.check(); err != nil {
		return nil, err
	}
	return file, nil
}

func (f *File) check() error {
	if len(f.Issuers) == 0 && f.Certificates == nil {
		return errors.New("it has neither issuers nor certificates")
	}
	for i, issuer := range f.Issuers {
		if issuer == nil {
			return fmt.Errorf("issuer %d is empty", i+1)
		}
		if err := issuer.check(); err != nil {
			return fmt.Errorf("issuer %q: %w", issuer.Name, err)
		}
		if slices.ContainsFunc(f.Issuers[:i], func(other *Issuer) bool {
			return other.Name == issuer.Name || other.Issuer == issuer.Issuer
		}) {
			return fmt.Errorf("issuer %q: another issuer has the same name, or the same URL", issuer.Name)
		}
	}
	if f.Certificates == nil {
		return nil
	}
	if err := f.Certificates.check(certificateName, "{common_name}"); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return nil
}

var issuerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

func (i *Issuer) check() error {
	if i.Leeway == nil {
		leeway := leewayDefault
		i.Leeway = &leeway
	}
	switch {
	case !issuerName.MatchString(i.Name):
		return errors.New("name must have 1 to 40 lower-case letters, digits and hyphens")
	case i.Name == certificateName || access.IsReserved(i.Name+":"):
		return errors.New("name is reserved: other principals begin with it")
	case i.Issuer == "":
		return errors.New("issuer must be the claim iss of its tokens")
	case len(i.Audiences) == 0 || slices.Contains(i.Audiences, ""):
		return errors.New("audiences must name what tokens for this gateway have as aud")
	case *i.Leeway < 0 || *i.Leeway > LeewayMax:
		return fmt.Errorf("leeway is %s, it must be 0 to %s", *i.Leeway, LeewayMax)
	case i.JWKSFile != "" && (i.JWKSURL != "" || i.CAFile != "" || i.BearerTokenFile != ""):
		return errors.New("jwks_file needs no jwks_url, ca_file or bearer_token_file")
	}
	address := i.JWKSURL
	if address == "" {
		address = i.Issuer
	}
	if i.JWKSFile == "" {
		if err := CheckURL(address); err != nil {
			return fmt.Errorf("%q: %w; or name a jwks_file", address, err)
		}
	}
	if i.SignIn != nil {
		if err := i.SignIn.check(i); err != nil {
			return fmt.Errorf("sign_in: %w", err)
		}
	}
	return i.Mapping.check(i.Name, "{sub}")
}

// CheckURL refuses a URL from which no keys may be read, and to which no secret may be sent: who can change what is on
// the way could replace them, or read it.
func CheckURL(text string) error {
	address, err := url.Parse(text)
	if err == nil && address.Host != "" && address.User == nil &&
		(address.Scheme == "https" || address.Scheme == "http" && isLoopback(address.Hostname())) {
		return nil
	}
	return errors.New("it must be a https URL without a user, or a http URL of the loopback interface")
}

// Claims are what a token or a certificate says, as JSON: text, numbers, booleans, lists and objects.
type Claims map[string]any

// integerMax is the largest integer of which a JSON number has every digit.
const integerMax = 1 << 53

// texts returns the values of a claim: one, those of a list, or none. A name that begins with a slash is a JSON Pointer
// (RFC 6901) into nested claims.
func (c Claims) texts(name string) (texts []string) {
	value, ok := c.find(name)
	if !ok {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, element := range list {
		if text, ok := textOf(element); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// words returns the values of a claim, of which one value may have several, separated by spaces.
func (c Claims) words(name string) (words []string) {
	if value, _ := c.find(name); value != nil {
		if text, ok := value.(string); ok {
			return strings.Fields(text)
		}
	}
	return c.texts(name)
}

func (c Claims) find(name string) (value any, ok bool) {
	if !strings.HasPrefix(name, "/") {
		value, ok = c[name]
		return value, ok
	}
	value = map[string]any(c)
	for segment := range strings.SplitSeq(name[1:], "/") {
		object, isObject := value.(map[string]any)
		if !isObject {
			return nil, false
		}
		if value, ok = object[unescape.Replace(segment)]; !ok {
			return nil, false
		}
	}
	return value, true
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func textOf(value any) (text string, ok bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case bool:
		return strconv.FormatBool(value), true
	case float64: // two large integers could be read as the same number
		return strconv.FormatFloat(value, 'f', -1, 64), math.Abs(value) < integerMax
	}
	return "", false
}

// labelMax is the length of a label, at most, in characters.
const labelMax = 60

// SignIn says how users of browsers sign in by an issuer.
type SignIn struct {
	ClientID         string   `yaml:"client_id"`          // that the issuer knows fencegate by
	ClientSecretFile string   `yaml:"client_secret_file"` // "": a public client
	Scopes           []string `yaml:"scopes"`             // never empty after Parse
	Label            string   `yaml:"label"`              // that users see; never "" after Parse
	RedirectURL      string   `yaml:"redirect_url"`       // "": as the browser reaches the gateway
}

// CallbackPath is the path of a gateway to which an issuer sends users back.
func CallbackPath(issuer string) string { return "/v1/sign-in/" + issuer + "/callback" }

// check also fills in what the file leaves out.
func (s *SignIn) check(issuer *Issuer) error {
	if len(s.Scopes) == 0 {
		s.Scopes = []string{"openid"}
	}
	s.Label = cmp.Or(s.Label, issuer.Name)
	switch {
	case s.ClientID == "":
		return errors.New("client_id must be the name by which the issuer knows fencegate")
	case !slices.Contains(issuer.Audiences, s.ClientID):
		return fmt.Errorf("audiences must contain the client_id, %q: it is the aud of the issuer's ID tokens", s.ClientID)
	case !slices.Contains(s.Scopes, "openid"):
		return errors.New("scopes must contain openid: without it, an issuer returns no ID token")
	case utf8.RuneCountInString(s.Label) > labelMax || printable.IndexUnfit(s.Label) >= 0:
		return fmt.Errorf("label must have 1 to %d printable characters", labelMax)
	case issuer.JWKSFile != "" || issuer.JWKSURL != "":
		return errors.New("it needs the issuer's discovery document, so there can be neither jwks_file nor jwks_url")
	case s.RedirectURL != "":
		return checkRedirectURL(s.RedirectURL, CallbackPath(issuer.Name))
	}
	return nil
}

func checkRedirectURL(text, path string) error {
	address, err := url.Parse(text)
	if err != nil || CheckURL(text) != nil || !strings.HasSuffix(address.Path, path) || address.RawQuery != "" ||
		address.Fragment != "" {
		return fmt.Errorf("redirect_url must be a https URL that ends with %s", path)
	}
	return nil
}
