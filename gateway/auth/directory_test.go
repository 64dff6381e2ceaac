package auth

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// accessFile has the issuer that a test has, and certificates.
const accessFile = `
issuers:
  - name: local
    issuer: ISSUER
    audiences: [fencegate, other]
    grants_claim: grants
    rules:
      - when: {sub: "al*"}
        grants: ["lock,write:jobs"]
certificates:
  principal: "{spiffe}"
  rules:
    - when: {spiffe: "spiffe://example.org/ns/*/sa/worker"}
      grants: ["lock:jobs"]
`

// newDirectory returns the Directory of a file in which ISSUER is the issuer. It has read the keys.
func newDirectory(t testing.TB, issuer *issuertest.Issuer, file string) *Directory {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.yaml")
	writeFile(t, path, strings.ReplaceAll(file, "ISSUER", issuer.URL))
	d, err := LoadDirectory(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.reload(t)
	return d
}

// writeFile replaces a file at once.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reload reads the keys of all issuers, as Run does.
func (d *Directory) reload(t testing.TB) {
	t.Helper()
	for _, issuer := range d.current.Load().issuers {
		if err := issuer.keys.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// show authenticates a request with a token.
func (d *Directory) show(token string) (*access.Principal, Reason) {
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	return Methods{Tokens: Tokens{d}}.Authenticate(request)
}

func (d *Directory) expect(t *testing.T, token string, want Reason) {
	t.Helper()
	if _, got := d.show(token); got != want {
		t.Errorf("the token was judged %q, want %q", got, want)
	}
}

func describe(p *access.Principal) string {
	return strings.Join(append([]string{p.Name, string(p.Kind)}, access.Texts(p.Grants())...), " ")
}

// readings counts what a Directory reads.
type readings chan string

func (r readings) AccessFileFailed() { r.add("file failed") }

func (r readings) IssuerKeysRead(issuer string, err error) {
	if err != nil {
		issuer += " failed"
	}
	r.add(issuer)
}

func (r readings) add(event string) {
	select {
	case r <- event:
	default:
	}
}

// A changed file is used. A file that can't be used is counted, and logged once; the former one stays. Issuers that
// remain keep their keys, even if they can't be read at that moment.
func TestAccessFileChanges(t *testing.T) {
	t.Parallel()
	issuer, log := issuertest.New(t), &process.Buffer{}
	d := newDirectory(t, issuer, accessFile)
	d.logger, d.interval = slog.New(slog.NewTextHandler(log, nil)), 5*time.Millisecond
	events, ended := make(readings, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(t.Context(), events)
	}()
	t.Cleanup(func() { <-ended })
	if got := <-events; got != "local" {
		t.Errorf("the first event is %q, want the reading of the issuer's keys", got)
	}
	token := issuer.Token(nil)
	d.expect(t, token, Accepted)
	issuer.SetDown(true)

	text, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, d.path, "issuers: [{name: bad}]")
	for range 3 {
		if got := <-events; got != "file failed" {
			t.Errorf("got the event %q, want a failure of the file", got)
		}
	}
	d.expect(t, token, Accepted)
	writeFile(t, d.path, string(bytes.ReplaceAll(text, []byte("lock,write:jobs"), []byte("read:other"))))
	await.True(t, "the changed rules are used", func() bool {
		p, reason := d.show(token)
		return reason == Accepted && describe(p) == "local:alice token read:other"
	})
	if got := log.String(); strings.Count(got, "access file not reloaded") != 1 || strings.Contains(got, token) {
		t.Errorf("logged %s, want one line about the bad file, and no token", got)
	}
	writeFile(t, d.path, "certificates: {rules: [{when: {dns: a}, grants: ['read:']}]}")
	await.True(t, "the issuer is gone", func() bool { _, reason := d.show(token); return reason == Unknown })
}

// The keys of an issuer are not used any more after the file has moved them elsewhere.
func TestMovedKeys(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	d := newDirectory(t, issuer, accessFile)
	token := issuer.Token(nil)
	d.expect(t, token, Accepted)
	moved := strings.Replace(accessFile, "audiences:", "jwks_url: ISSUER/moved\n    audiences:", 1)
	writeFile(t, d.path, strings.ReplaceAll(moved, "ISSUER", issuer.URL))
	if changed, err := d.load(); !changed || err != nil {
		t.Fatalf("the file has changed: %t, %v", changed, err)
	}
	d.expect(t, token, NotReady)
}

// LoadDirectory returns why there is no usable file.
func TestNoAccessFile(t *testing.T) {
	t.Parallel()
	if _, err := LoadDirectory(filepath.Join(t.TempDir(), "missing"), slog.Default()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// newExample returns the Directory of a file of deploy/access, with a local issuer instead of its own.
func newExample(t *testing.T, name string, issuer *issuertest.Issuer) *Directory {
	t.Helper()
	text, err := os.ReadFile("../../deploy/access/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := accessfile.Parse(text); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text = regexp.MustCompile(`(?m)^    issuer: .*`).ReplaceAll(text, []byte("    issuer: ISSUER"))
	text = regexp.MustCompile(`(?m)^    (jwks_url|ca_file|bearer_token_file): .*\n`).ReplaceAll(text, nil)
	return newDirectory(t, issuer, string(text))
}

// With the example for Kubernetes, a service account has the grants of its own rule and those of its namespace. A token
// for the cluster itself is refused.
func TestKubernetesExample(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	d := newExample(t, "kubernetes.yaml", issuer)
	account := func(namespace, name string, audience string) string {
		return issuer.Token(map[string]any{
			"aud": []string{audience}, "sub": "system:serviceaccount:" + namespace + ":" + name, "jti": "f1f5",
			"kubernetes.io": map[string]any{
				"namespace":      namespace,
				"node":           map[string]any{"name": "n1", "uid": "0b1c"},
				"pod":            map[string]any{"name": "worker-7d9", "uid": "1c2d"},
				"serviceaccount": map[string]any{"name": name, "uid": "2d3e"},
			},
		})
	}
	for token, want := range map[string]string{
		account("payments", "worker", "fencegate"): "kubernetes:payments/worker token lock:payments write:payments " +
			"read:payments observe:payments",
		account("payments-test", "worker", "fencegate"): "kubernetes:payments-test/worker token observe:payments",
		account("other", "worker", "fencegate"):         "kubernetes:other/worker token",
	} {
		p, reason := d.show(token)
		if reason != Accepted || describe(p) != want {
			t.Errorf("judged %q, %+v, want %q", reason, p, want)
		}
	}
	d.expect(t, account("payments", "worker", "https://kubernetes.default.svc.cluster.local"), Unknown)
}

// With the example for GitHub Actions, a workflow of the main branch may lock the deployment, one of the environment may
// write, and neither a pull request nor another owner's repository may do anything.
func TestGitHubActionsExample(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	d := newExample(t, "github-actions.yaml", issuer)
	workflow := map[string]any{
		"aud": "https://fence.example.net", "sub": "repo:example-org/shop:ref:refs/heads/main", "repository": "example-org/shop",
		"repository_owner": "example-org", "repository_owner_id": "1234567", "repository_id": "74", "run_id": "1",
		"ref": "refs/heads/main", "ref_type": "branch", "event_name": "push", "actor": "octocat", "nbf": nil,
		"job_workflow_ref": "example-org/shop/.github/workflows/deploy.yml@refs/heads/main", "runner_environment": "github-hosted",
	}
	with := func(changed map[string]any) string {
		claims := maps.Clone(workflow)
		maps.Copy(claims, changed)
		return issuer.Token(claims)
	}
	for token, want := range map[string]string{
		with(nil): "github:example-org/shop token lock:deploy/shop",
		with(map[string]any{"environment": "production", "ref": "refs/tags/v1"}): "github:example-org/shop token " +
			"lock:deploy/production write:deploy/production",
		with(map[string]any{"ref": "refs/pull/7/merge"}):         "github:example-org/shop token",
		with(map[string]any{"repository_owner_id": "7"}):         "github:example-org/shop token",
		with(map[string]any{"repository": "example-org/shop-2"}): "github:example-org/shop-2 token",
	} {
		p, reason := d.show(token)
		if reason != Accepted || describe(p) != want {
			t.Errorf("judged %q, %+v, want %q", reason, p, want)
		}
	}
}
