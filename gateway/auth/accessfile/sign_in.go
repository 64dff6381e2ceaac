package accessfile

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fencegate/fencegate/internal/printable"
)

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
