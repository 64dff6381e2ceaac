package kubernetes

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// TestProduction runs the pods of production.yaml: the owner of the schema migrates, gateways use a role that owns
// nothing, both use only a database whose certificate is verified, and callers need an API key or the token of a
// service account. Then it replaces them by pods to which clients show certificates.
func TestProduction(t *testing.T) {
	t.Parallel()
	authority, err := devcert.NewAuthority("test")
	check(t, err)
	server := issue(t, authority, devcert.Request{Name: "gateway", Hosts: []string{"127.0.0.1"}})
	files := map[string]string{
		"tls.crt": string(server.Certificate), "tls.key": string(server.Key), "ca.crt": string(authority.PEM)}
	database := issue(t, authority, devcert.Request{Name: "database", Hosts: []string{"localhost"}})
	address := postgres.NewEncrypted(t, database.Certificate, database.Key)
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	as := func(role string) string { return "postgres://" + role + "@localhost:" + port + "/fencegate" }
	createRole(t, as("fencegate")+"?sslmode=require")
	issuer := issuertest.New(t)
	issuer.Want("Bearer of-the-gateway")
	c := newCluster(t, map[string]string{"v1.2.3": process.Build(t)}, map[string]map[string]string{
		"fencegate-database": {"owner": "postgres://fencegate@" + address + "/fencegate", "gateway": as("gateway")},
		"database-ca":        {"ca.crt": string(authority.PEM)},
		"fencegate-access":   {"client-secret": "secret"},
		"fencegate-tls":      files,
		"service-account":    {"token": "of-the-gateway"},
		"kube-root-ca.crt":   {"ca.crt": string(authority.PEM)},

		"cluster-app": {"uri": as("fencegate")},
		"cluster-ca":  {"ca.crt": string(authority.PEM)},
		"access":      {"access.yaml": `{certificates: {rules: [{when: {common_name: worker}, grants: ["read:"]}]}}`},
		"clients":     {"authority.pem": string(authority.PEM)},
		"tls":         files,
		"redis":       {"FENCEGATE_REDIS_URL": "redis://127.0.0.1:1"},
	})
	values := "drainDelay: 2s\n" + strings.NewReplacer("https://kubernetes.default.svc/openid/v1/jwks", issuer.URL+"/keys",
		"https://kubernetes.default.svc.cluster.local", issuer.URL).Replace(valuesFiles(t)["production"])
	if err := c.helm("pre-install", values); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("the migration by a host that the database's certificate does not have returned %v", err)
	}
	c.locked(func() { c.objects["fencegate-database"]["owner"] = as("fencegate") })
	check(t, c.helm("pre-install", values))
	c.awaitRollout()
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	key := c.createKey(trusting)
	token := func(account string) string {
		return issuer.Token(map[string]any{"sub": "system:serviceaccount:payments:" + account,
			"kubernetes.io": map[string]any{"namespace": "payments", "serviceaccount": map[string]any{"name": account}}})
	}
	await.True(t, "the keys of the issuer are read", func() bool {
		return statusOf(t, trusting, "https://"+c.address, token("other")) == http.StatusForbidden
	})
	for credential, want := range map[string]int{
		"": http.StatusUnauthorized, "another": http.StatusUnauthorized, key: http.StatusOK, token("worker"): http.StatusOK,
	} {
		if got := statusOf(t, trusting, "https://"+c.address, credential); got != want {
			t.Errorf("the credential %q got %d, want %d", credential, got, want)
		}
	}

	check(t, c.helm("pre-upgrade", valuesFiles(t)["certificates"]))
	c.awaitRollout()
	for name, want := range map[string]int{"worker": http.StatusOK, "other": http.StatusForbidden} {
		pair, err := issue(t, authority, devcert.Request{Name: name}).TLS()
		check(t, err)
		showing := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{pair}}}}
		if got := statusOf(t, showing, "https://"+c.address, ""); got != want {
			t.Errorf("the certificate of %s got %d, want %d", name, got, want)
		}
		showing.CloseIdleConnections()
	}
}

// TestReadme checks that the README makes every secret and config map that production.yaml names.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	check(t, err)
	var names []string
	all := decode(t, valuesFiles(t)["production"])
	for _, pod := range all.pods() {
		for _, volume := range pod.Spec.Volumes {
			names = append(names, sources(volume)...)
		}
		for _, variable := range pod.Spec.Containers[0].Env {
			if variable.ValueFrom != nil {
				names = append(names, variable.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for _, endpoint := range all["servicemonitor"].(*monitoring.ServiceMonitor).Spec.Endpoints {
		names = append(names, endpoint.Authorization.Credentials.Name)
	}
	others := []string{"service-account", "kube-root-ca.crt", "fencegate"} // made by Kubernetes, and by the chart
	for _, name := range names {
		made := regexp.MustCompile(`(?m)(create secret generic|create configmap|secretName:) ` + name + `( |$)`)
		if !made.Match(text) && !slices.Contains(others, name) {
			t.Errorf("README.md does not make %s", name)
		}
	}
	if len(names) < 8 {
		t.Errorf("production.yaml names only %q", names)
	}
}

func issue(t *testing.T, authority *devcert.Authority, request devcert.Request) devcert.Pair {
	t.Helper()
	pair, err := authority.Issue(request)
	check(t, err)
	return pair
}

// createRole makes the role of the gateways, once the database takes connections.
func createRole(t *testing.T, url string) {
	t.Helper()
	check(t, await.Nil(func() error {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(t.Context(), "create role gateway login")
		return err
	}))
}

// statusOf returns the status of the answer to a read of records.
func statusOf(t *testing.T, client *http.Client, url, credential string) int {
	t.Helper()
	url += "/v1/resources/payments/records"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	check(t, err)
	if credential != "" {
		request.Header.Set("Authorization", "Bearer "+credential)
	}
	response, err := client.Do(request)
	check(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}
