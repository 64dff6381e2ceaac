package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// prometheus is a process that runs on the configuration of docker-compose.yml.
type prometheus struct {
	t   *testing.T
	url string
}

// window replaces every window of the rules, and holds a few scrapes.
const window = "15s"

// startPrometheus runs a real Prometheus before gateways. Only addresses and times differ from what is deployed: it
// scrapes every second, and the rules' times are seconds, too.
func startPrometheus(t *testing.T, address string, gateways []*gateway.Process) prometheus {
	t.Helper()
	program := postgres.Require(t, "prometheus")
	config := regexp.MustCompile(`(_interval|_timeout): \d+s`).
		ReplaceAllString(withGateways(t, "prometheus/prometheus.yml", gateways), "${1}: 1s")
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), quickened(t), 0o600))
	p := prometheus{t, "http://" + address}
	start(t, program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	await.True(t, "Prometheus is ready", func() bool {
		response, err := impatient.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// quickened returns the rules with seconds in place of minutes; an age of ten seconds is too old.
func quickened(t *testing.T) []byte {
	t.Helper()
	var file map[string]any
	unmarshal(t, "prometheus/alerts.yml", &file)
	for _, group := range file["groups"].([]any) {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			rule := rule.(map[string]any)
			rule["for"] = "3s"
			expr := regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(rule["expr"].(string), "["+window+"]")
			rule["expr"] = regexp.MustCompile(`(_seconds\)) > \d+`).ReplaceAllString(expr, "$1 > 10")
		}
	}
	text, err := yaml.Marshal(file)
	check(t, err)
	return text
}

// withGateways returns a configuration with the addresses of real gateways.
func withGateways(t *testing.T, path string, gateways []*gateway.Process) string {
	t.Helper()
	config := read(t, path)
	for i, gateway := range gateways {
		config = replace(t, config, fmt.Sprintf("gateway-%d:8080", i+1), strings.TrimPrefix(gateway.URL, "http://"))
	}
	return config
}

func replace(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %s in\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, replacement)
}

// impatient is the client of Prometheus' API. Prometheus answers within milliseconds, or sometimes not at all.
var impatient = &http.Client{Timeout: 5 * time.Second}

// api calls Prometheus and decodes the data of its answer. It repeats a call that gets no answer. It returns an error
// if Prometheus rejects the call, for example a query that it can't parse.
func (p prometheus) api(path string, form url.Values, data any) error {
	p.t.Helper()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	await.True(p.t, "Prometheus answers "+path, func() bool {
		response, err := impatient.Get(p.url + path + "?" + form.Encode())
		if err != nil {
			p.t.Logf("%s: %v", path, err)
			return false
		}
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(&answer) == nil
	})
	if answer.Status != "success" {
		return fmt.Errorf("rejected by Prometheus: %s", answer.Error)
	}
	return nil
}

// sample is the result of a query for one series.
type sample struct {
	Metric map[string]string
	Value  [2]any // the time, and the value as text
}

func (p prometheus) query(query string) ([]sample, error) {
	p.t.Helper()
	var data struct{ Result []sample }
	err := p.api("/api/v1/query", url.Values{"query": {query}}, &data)
	return data.Result, err
}

// finds reports whether a query finds a number. The quantile of nothing is NaN, which does not count.
func (p prometheus) finds(query string) bool {
	p.t.Helper()
	samples, err := p.query(query)
	if err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	for _, sample := range samples {
		if sample.Value[1] != "NaN" {
			return true
		}
	}
	return false
}

// alerts returns the names of the alerts in a state: pending or firing.
func (p prometheus) alerts(state string) (names []string) {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	check(p.t, p.api("/api/v1/alerts", nil, &data))
	for _, alert := range data.Alerts {
		if alert.State == state {
			names = append(names, alert.Labels["alertname"])
		}
	}
	return names
}

// redisFails has an acquire fail since another program keeps a list under the lock's key.
func redisFails(t *testing.T, redis *redis.Server, client *lockclient.Client, url string) {
	t.Helper()
	_, err := admin.New(client).PutPolicy(t.Context(), "in-redis", api.PolicyRequest{Leases: "redis"})
	check(t, err)
	redis.Do("RPUSH", "in-redis", "a")
	answer, err := http.Post(url+"/v1/locks/in-redis/acquire", "application/json", strings.NewReader(`{"owner_id":"a"}`))
	check(t, err)
	check(t, answer.Body.Close())
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("the acquire is answered %s, want 503", answer.Status)
	}
}

// TestSlow_Prometheus lets a real Prometheus scrape two real gateways. Every query of the dashboards and of the alerts
// finds data. The alert on zombies fires in a storm, and is resolved after it. So do those on a queue, a lease and a
// snapshot beside a transaction that is left open, while other locks are granted.
func TestSlow_Prometheus(t *testing.T) {
	t.Parallel()
	redis := redis.Start(t)
	databaseURL := postgres.Migrated(t)
	address := network.FreeAddress(t)
	all := gatewaysOf(t, databaseURL, 2, "--redis-url", redis.URL(), "--prometheus-url", "http://"+address)
	p := startPrometheus(t, address, all)
	clients := []*lockclient.Client{clientOf(t, all[0].URL), clientOf(t, all[1].URL)}
	workload(t, clients)
	await.True(t, "all gateways were scraped often enough for a rate", func() bool {
		samples, err := p.query(`count_over_time(up{job="fencegate"}[` + window + `]) >= 3`)
		return err == nil && len(samples) == len(all)
	})
	p.checkRules()

	// While all is well no alert fires; for longer than any of the quickened rules waits. A machine that is too busy for a
	// scrape within a second is not well.
	const well = 8 * time.Second
	quiet := time.Now().Add(well)
	await.True(t, "all was well for a while", func() bool {
		if p.finds(`min_over_time(up{job="fencegate"}[` + window + `]) == 0`) {
			quiet = time.Now().Add(well)
			return false
		}
		if firing := p.alerts("firing"); len(firing) > 0 {
			t.Fatalf("while all is well %q fire", firing)
		}
		return time.Now().After(quiet)
	})

	endTransaction := forgotten(t, databaseURL, clients[0])
	calm := storm(t, clients)
	fire := []string{"FencegateZombieRate", "FencegateQueueStuck", "FencegateLeaseOverdue", "FencegateOldSnapshot"}
	for _, name := range fire {
		await.True(t, name+" fires", func() bool { return slices.Contains(p.alerts("firing"), name) })
	}
	await.True(t, "the overview shows them, with their runbooks", func() bool {
		overview, err := admin.New(clients[0]).Overview(t.Context(), 5*time.Minute)
		check(t, err)
		if overview.Alerts == nil {
			return false
		}
		shown := map[string]string{}
		for _, alert := range overview.Alerts.Firing {
			shown[alert.Name] = alert.RunbookURL
		}
		return !slices.ContainsFunc(fire, func(name string) bool { return !strings.Contains(shown[name], "runbooks/"+name) })
	})
	endTransaction()
	if !p.finds(`max_over_time(ALERTS{alertname="FencegateZombieRate",alertstate="pending"}[5m])`) {
		t.Error("FencegateZombieRate was not pending before it fired")
	}
	redisFails(t, redis, clients[0], all[0].URL)
	p.checkQueries()
	calm()
	await.True(t, "they are resolved", func() bool {
		return !slices.ContainsFunc(append(p.alerts("firing"), p.alerts("pending")...), func(name string) bool {
			return slices.Contains(fire, name)
		})
	})
	p.checkTokenLine()
}
