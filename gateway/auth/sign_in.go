package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/gateway/auth/oidc"
	"github.com/fencegate/fencegate/internal/access"
)

// Why nobody has signed in by an issuer. oidc.ErrRefused is another reason.
var (
	ErrNoSignIn    = errors.New("there is no such issuer to sign in by")
	ErrUnreachable = errors.New("the issuer can't be asked")
	ErrIDToken     = errors.New("the ID token of the issuer is not accepted")
)

// SignIns returns the issuers by which users of browsers sign in, in the order of the file; none if d is nil.
func (d *Directory) SignIns() (issuers []*accessfile.Issuer) {
	if d == nil {
		return nil
	}
	for _, issuer := range d.current.Load().file.Issuers {
		if issuer.SignIn != nil {
			issuers = append(issuers, issuer)
		}
	}
	return issuers
}

// HasSignIn reports whether users sign in by the issuer with this name.
func (d *Directory) HasSignIn(name string) bool {
	_, err := d.signIn(name)
	return err == nil
}

// signIn returns the issuer with this name, if users sign in by it.
func (d *Directory) signIn(name string) (*issuer, error) {
	if d != nil {
		for _, issuer := range d.current.Load().issuers {
			if issuer.Name == name && issuer.SignIn != nil {
				return issuer, nil
			}
		}
	}
	return nil, ErrNoSignIn
}

// BeginSignIn returns the URL of an issuer to which a browser is sent to sign in. The issuer sends it back to the
// callback, or to where the file says. BeginSignIn does no I/O: the issuer's discovery document is in memory. It returns
// ErrNoSignIn or ErrUnreachable.
func (d *Directory) BeginSignIn(name string, secrets oidc.Secrets, callback string) (string, error) {
	issuer, err := d.signIn(name)
	if err != nil {
		return "", err
	}
	endpoint := issuer.keys.Endpoint()
	if endpoint == nil {
		return "", fmt.Errorf("%w: its discovery document was not read yet", ErrUnreachable)
	}
	address, err := oidc.SignInURL(*endpoint, issuer.SignIn, secrets, issuer.redirectURL(callback))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return address, nil
}

// redirectURL is where the issuer sends a browser back to.
func (i *issuer) redirectURL(callback string) string {
	if i.SignIn.RedirectURL != "" {
		return i.SignIn.RedirectURL
	}
	return callback
}

// FinishSignIn asks an issuer for the ID token of a code, and returns it with its principal. It returns ErrNoSignIn,
// ErrUnreachable, oidc.ErrRefused or ErrIDToken.
func (d *Directory) FinishSignIn(
	ctx context.Context, name string, secrets oidc.Secrets, code, callback string,
) (token string, principal *access.Principal, err error) {
	issuer, err := d.signIn(name)
	if err != nil {
		return "", nil, err
	}
	token, err = issuer.exchange(ctx, secrets.Verifier, code, callback)
	switch {
	case errors.Is(err, oidc.ErrRefused):
		return "", nil, err
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	// It is judged as it is in every request from now on, and besides as the answer to this sign-in.
	principal, reason := d.token(token)
	switch reason {
	case Accepted:
	case NotReady: // its key is new
		return "", nil, fmt.Errorf("%w for its new key yet", ErrUnreachable)
	default:
		return "", nil, fmt.Errorf("%w: %s", ErrIDToken, reason)
	}
	if err := issuer.checkIDToken(token, secrets.Nonce); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	return token, principal, nil
}

func (i *issuer) exchange(ctx context.Context, verifier, code, callback string) (string, error) {
	endpoint := i.keys.Endpoint()
	if endpoint == nil {
		return "", errors.New("its discovery document was not read yet")
	}
	client, err := oidc.NewClient(i.Source)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, oidc.Timeout)
	defer cancel()
	return client.Exchange(ctx, *endpoint, i.SignIn, verifier, code, i.redirectURL(callback))
}

// checkIDToken checks that a token whose signature was verified is of this issuer, for this client, and for the sign-in
// with this nonce.
func (i *issuer) checkIDToken(text, nonce string) error {
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return err
	}
	var standard jwt.Claims
	var claims struct {
		Nonce           string `json:"nonce"`
		AuthorizedParty string `json:"azp"`
	}
	if err := token.UnsafeClaimsWithoutVerification(&standard, &claims); err != nil {
		return err
	}
	switch client := i.SignIn.ClientID; {
	case standard.Issuer != i.Issuer.Issuer:
		return errors.New("it is of another issuer")
	case !standard.Audience.Contains(client) || claims.AuthorizedParty != "" && claims.AuthorizedParty != client:
		return errors.New("it is for another client")
	case subtle.ConstantTimeCompare([]byte(claims.Nonce), []byte(nonce)) != 1:
		return errors.New("it is for another sign-in")
	}
	return nil
}
