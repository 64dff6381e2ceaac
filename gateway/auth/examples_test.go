package auth

import (
	"maps"
	"os"
	"regexp"
	"testing"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/internal/testenv/issuertest"
)

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
