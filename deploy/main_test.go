package deploy

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// gateways starts some before one database. They end with the test.
func gateways(t *testing.T, n int, args ...string) []*gateway.Process {
	t.Helper()
	return gatewaysOf(t, postgres.Migrated(t), n, args...)
}

// gatewaysOf starts some before the database at a URL.
func gatewaysOf(t *testing.T, url string, n int, args ...string) []*gateway.Process {
	t.Helper()
	var all []*gateway.Process
	for range n {
		all = append(all, gateway.Serve(t, url, args...))
	}
	return all
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service is what the tests here run of a service of docker-compose.yml. deploy/compose reads all of it.
type service struct {
	Command     []string
	HealthCheck struct{ Test []string } `yaml:"healthcheck"`
}

func composed(t *testing.T, name string) service {
	t.Helper()
	var compose struct{ Services map[string]service }
	check(t, yaml.Unmarshal([]byte(read(t, "../docker-compose.yml")), &compose))
	return compose.Services[name]
}
