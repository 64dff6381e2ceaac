//go:build unix

package dashboard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// startGuarded serves a database to callers with keys, until the test ends. Its client is the principal admin.
func startGuarded(t *testing.T, database string, flags ...string) (g *gateway, admin string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), process.BuildChecked(t), "keys", "create", "admin", "--grant", "all:",
		"--in-database", database)
	made, err := command.Output()
	check(t, err)
	admin = regexp.MustCompile(`fgk_\w+`).FindString(string(made))
	g = startGatewayOn(t, database, append(flags, "--auth", "keys")...)
	g.calls = g.client(t, lockclient.WithToken(admin))
	await.True(t, "the gateway has read the keys", func() bool {
		_, err := g.WhoAmI(t.Context())
		return err == nil
	})
	return g, admin
}

func (g *gateway) key(t *testing.T, principal string, grants ...string) string {
	t.Helper()
	made, err := g.CreateKey(t.Context(), api.KeyRequest{Principal: principal, Grants: grants})
	check(t, err)
	return made.Secret
}

// signIn fills in the sign-in page.
func (p *tab) signIn(key string) {
	p.t.Helper()
	p.waitText("main h1", "Sign in")
	p.write("#credential", key)
	p.click("main button[type=submit]")
}

// navigation returns the pages that the navigation shows.
func (p *tab) navigation() []string {
	p.t.Helper()
	return eval[[]string](p, `[...document.querySelectorAll("nav a")].map((page) => page.innerText)`)
}

// TestSignIn checks that the dashboard asks for a key, shows a principal what it may see and says where that is all,
// that an administrator manages keys, each shown once, and that a page whose key is revoked asks again.
func TestSignIn(t *testing.T) {
	t.Parallel()
	g, admin := startGuarded(t, postgres.Migrated(t))
	g.hold(t, "jobs/42", "an-owner")
	g.hold(t, "secret/1", "another-owner")
	p := openTab(t, g, desktop)
	p.allow("401")

	p.open("#/locks")
	p.signIn("fgk_wrong")
	p.waitText("main [role=alert]", "unknown, expired or revoked")
	p.checkStructure()
	p.checkColours(false)
	p.signIn(g.key(t, "watcher", "observe:jobs"))
	p.waitText("main table", "jobs/42")
	p.waitText(".heading", "only what is on jobs")
	p.waitText("#account", "watcher")
	p.waitText("#live", "Live")
	if pages := p.navigation(); !slices.Equal(pages, []string{"Rejections", "Locks"}) {
		t.Errorf("the pages of a principal that observes some names are %q", pages)
	}
	if eval[bool](p, `document.cookie.includes("fgk_")`) {
		t.Error("a script can read the key")
	}
	if strings.Contains(p.text("main"), "secret/1") {
		t.Error("the page shows a lock that the principal may not see")
	}
	p.open("?again#/")
	p.waitText("main h1", "Rejections")
	p.open(lockHash("jobs/42"))
	p.waitText("main", "needs the scope read on this name")
	p.waitText("main", "an-owner")
	if eval[bool](p, `document.querySelector("button.danger") !== null`) {
		t.Error("a principal that may not break the lock sees the button")
	}
	p.open("#/owners/an-owner")
	p.waitText("main table", "jobs/42")
	p.open("#/owners/another-owner")
	p.waitText("main", "Not holding any lock")
	for _, hash := range []string{"#/keys", lockHash("secret/1")} {
		p.open(hash)
		p.waitText("main", "You may not see this page")
		p.checkStructure()
	}
	p.clickText("#account button", "Sign out")
	p.waitText("main h1", "Sign in")

	p.open("#/keys")
	p.signIn(admin)
	p.manageKeys(g)
	_, err := g.RevokeKey(t.Context(), admin[len("fgk_"):len("fgk_")+10])
	check(t, err)
	p.waitText("main", "You have been signed out")
}

// manageKeys creates a key on the page of keys, revokes it, and rotates that of the watcher.
func (p *tab) manageKeys(g *gateway) {
	t := p.t
	t.Helper()
	p.waitText("main table", "observe on jobs")
	p.click(".heading button")
	p.write("dialog[open] [name=principal]", "importer")
	p.write("dialog[open] [name=grants]", "lock,write:imports")
	p.checkStructure()
	p.click("dialog[open] button[type=submit]")
	p.waitText("dialog[open]", "nobody can get it again")
	made := eval[string](p, `document.querySelector(".secret").value`)
	importer := g.client(t, lockclient.WithToken(made))
	who, err := importer.WhoAmI(t.Context())
	check(t, err)
	if who.Principal != "importer" || strings.Join(who.Grants, " ") != "lock:imports write:imports" ||
		who.ExpiresAt == nil {
		t.Errorf("the new key is of %+v", who)
	}
	p.clickText("dialog[open] button", "Close")
	p.wait("the page has no key", `document.querySelector(".secret") === null`)
	p.waitText("main table", "lock, write on imports")

	p.clickText("main tbody button", "Revoke…") // of the newest
	p.waitText("dialog[open]", "importer")
	p.clickText("dialog[open] button", "Revoke the key")
	p.waitText("dialog[open]", "is revoked")
	if _, err := importer.WhoAmI(t.Context()); !errors.Is(err, lockclient.ErrUnauthenticated) {
		t.Errorf("the revoked key was answered %v", err)
	}
	p.clickText("dialog[open] button", "Close")
	p.waitText("main table", "revoked") // the list is refreshed, so the first live key is the watcher's
	p.clickText("main tbody button", "Rotate…")
	p.clickText("dialog[open] button", "Rotate")
	p.waitText("dialog[open]", "The new key of watcher")
}

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
