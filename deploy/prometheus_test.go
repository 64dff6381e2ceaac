package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
)

// prometheus is one that runs on the configuration of docker-compose.yml.
type prometheus struct {
	t   *testing.T
	url string
}

// window is in place of every window of the rules, and holds a few scrapes.
const window = "15s"

// startPrometheus runs a real Prometheus before gateways. All that differs from what is deployed are addresses and times: it scrapes every
// second, and the rules' windows and patience are seconds, too.
func startPrometheus(t *testing.T, gateways []*gatewayprocess.Process) prometheus {
	t.Helper()
	program := pgtest.Require(t, "prometheus")
	config := read(t, "prometheus/prometheus.yml")
	for i, gateway := range gateways {
		config = replace(t, config, fmt.Sprintf("gateway-%d:8080", i+1), strings.TrimPrefix(gateway.URL, "http://"))
	}
	config = regexp.MustCompile(`(_interval|_timeout): \d+s`).ReplaceAllString(config, "${1}: 1s")
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), quickened(t), 0o600))
	p := prometheus{t, "http://" + freeAddress(t)}
	start(t, program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+strings.TrimPrefix(p.url, "http://"), "--log.level=warn")
	await.True(t, "Prometheus is ready", func() bool {
		response, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// quickened are the rules with seconds in place of minutes.
func quickened(t *testing.T) []byte {
	t.Helper()
	var file map[string]any
	unmarshal(t, "prometheus/alerts.yml", &file)
	for _, group := range file["groups"].([]any) {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			rule := rule.(map[string]any)
			rule["for"] = "3s"
			rule["expr"] = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(rule["expr"].(string), "["+window+"]")
		}
	}
	text, err := yaml.Marshal(file)
	check(t, err)
	return text
}

func replace(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %s in\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, replacement)
}

// api asks Prometheus, and returns the answer's data. An error of Prometheus is returned as one: a query that it does not understand, for example.
func (p prometheus) api(path string, form url.Values, data any) error {
	p.t.Helper()
	response, err := http.PostForm(p.url+path, form)
	if form == nil {
		response, err = http.Get(p.url + path)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if answer.Status != "success" {
		return fmt.Errorf("refused by Prometheus: %s", answer.Error)
	}
	return nil
}

// sample is what a query finds of one series.
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

// finds tells whether a query finds a number. A quantile of nothing is found, and is none.
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

// alerts are the names of those in a state: pending or firing.
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

// awaitScrapes returns when both gateways were scraped often enough for a rate.
func (p prometheus) awaitScrapes(targets int) {
	p.t.Helper()
	await.True(p.t, "all gateways are scraped", func() bool {
		samples, err := p.query(`count_over_time(up{job="fencegate"}[` + window + `]) >= 3`)
		return err == nil && len(samples) == targets
	})
}

// A real Prometheus scrapes two real gateways. Every query of the dashboards and of the alerts finds data, and the alert on zombies
// fires in a storm, and is resolved after it.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	all := gateways(t, 2)
	p := startPrometheus(t, all)
	clients := clientsOf(t, all)
	workload(t, clients)
	p.awaitScrapes(len(all))
	p.checkRules()

	// While all is well no alert fires; for longer than any of the quickened rules waits.
	quiet := time.Now().Add(8 * time.Second)
	await.True(t, "all was well for a while", func() bool {
		if firing := p.alerts("firing"); len(firing) > 0 {
			t.Fatalf("while all is well %q fire", firing)
		}
		return time.Now().After(quiet)
	})

	calm := storm(t, clients)
	await.True(t, "FencegateZombieRate fires", func() bool { return contains(p.alerts("firing"), "FencegateZombieRate") })
	if !p.finds(`max_over_time(ALERTS{alertname="FencegateZombieRate",alertstate="pending"}[5m])`) {
		t.Error("FencegateZombieRate was not pending before it fired")
	}
	p.checkQueries()
	calm()
	await.True(t, "FencegateZombieRate is resolved", func() bool {
		return !contains(p.alerts("firing"), "FencegateZombieRate") && !contains(p.alerts("pending"), "FencegateZombieRate")
	})
	p.checkTokenLine()
}
