//go:build unix

package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// issuerFile is an access file with the issuer sso, whose users may observe everything. It can be replaced.
type issuerFile struct {
	path   string
	issuer *issuertest.Issuer
}

// newIssuerFile starts an issuer that asks its users.
func newIssuerFile(t *testing.T) *issuerFile {
	t.Helper()
	f := &issuerFile{filepath.Join(t.TempDir(), "access.yaml"), issuertest.New(t)}
	f.issuer.SetAsks()
	f.write(t, "dashboard")
	return f
}

// write replaces the client ID, and so the audience of tokens.
func (f *issuerFile) write(t *testing.T, client string) {
	t.Helper()
	f.issuer.SetClient(client, "")
	check(t, os.WriteFile(f.path+".new", fmt.Appendf(nil, `
issuers:
  - name: sso
    issuer: %q
    audiences: [%[2]s]
    rules: [{when: {sub: "**"}, grants: ["observe:"]}]
    sign_in: {client_id: %[2]s, label: Example SSO}
`, f.issuer.URL, client), 0o600))
	check(t, os.Rename(f.path+".new", f.path))
}

// TestSignInByIssuer checks that a user signs in by an issuer of another site, returns to the page where the sign-in
// began, and is asked to sign in again when the token is not accepted any more, or when a sign-in has failed.
func TestSignInByIssuer(t *testing.T) {
	t.Parallel()
	file := newIssuerFile(t)
	g := startGatewayOn(t, postgres.Migrated(t), "--auth", "tokens", "--access-file", file.path,
		"--event-keep-alive", "200ms")
	p := openTab(t, g, desktop)
	p.allow("401")
	p.allowHost(file.issuer.Site())

	p.open("#/locks")
	p.waitText("main h1", "Sign in")
	p.clickText(".issuers a", "Sign in with Example SSO")
	p.click("#continue")
	p.waitText("#account", "sso:alice")
	p.waitText("main h1", "Locks")
	p.waitText("#live", "Live")
	if got := eval[string](p, `location.pathname + location.search + location.hash`); got != "/#/locks" {
		t.Errorf("after the sign-in, the page is at %s", got)
	}
	if eval[bool](p, `document.cookie.includes("eyJ")`) {
		t.Error("a script can read the token")
	}
	file.write(t, "renamed")
	p.waitText("main", "You have been signed out")

	p.open("v1/sign-in/sso/callback?state=x")
	p.waitText("main [role=alert]", "more than 10 minutes")
	p.checkStructure()
	p.checkColours(false)
	if search := eval[string](p, "location.search"); strings.Contains(search, "sign-in") {
		t.Errorf("the failure is still in the address: %s", search)
	}
}
