package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	alertsInterval = 5 * time.Second
	alertsTimeout  = 3 * time.Second
	alertsBytesMax = 4 << 20
	alertsMax      = 20 // shown at once
)

// RunAlerts reads the firing alerts of fencegate from Prometheus every alertsInterval until ctx ends, if
// Config.PrometheusURL names one. No request waits for that: the overview has what was read last.
func (g *Gateway) RunAlerts(ctx context.Context) {
	if g.config.PrometheusURL == "" {
		return
	}
	client := http.Client{Timeout: alertsTimeout}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(alertsInterval)
	defer ticker.Stop()
	for {
		firing, err := firingAlerts(ctx, &client, g.config.PrometheusURL)
		alerts := api.OverviewAlerts{At: api.Time{Time: time.Now()}, Firing: firing}
		if err != nil {
			alerts.Firing, alerts.Failed = []api.Alert{}, err.Error()
		}
		g.alerts.Store(&alerts)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func isHTTP(text string) bool {
	named, err := url.Parse(text)
	return err == nil && (named.Scheme == "http" || named.Scheme == "https") && named.Host != ""
}

// rank is 0 for critical alerts, and 1 for others.
func rank(alert api.Alert) int {
	if alert.Severity == "critical" {
		return 0
	}
	return 1
}

// firingAlerts asks Prometheus' HTTP API. Its error does not show the URL, which may have a password.
func firingAlerts(ctx context.Context, client *http.Client, prometheus string) ([]api.Alert, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(prometheus, "/")+"/api/v1/alerts", http.NoBody)
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	response, err := client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return nil, failed.Err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", response.Status)
	}
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels      struct{ Alertname, Severity string }
				Annotations struct {
					Summary    string
					RunbookURL string `json:"runbook_url"`
				}
				State    string
				ActiveAt time.Time
			}
		}
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, alertsBytesMax)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("its answer is not that of /api/v1/alerts: %w", err)
	}
	firing := []api.Alert{}
	for _, alert := range answer.Data.Alerts {
		if alert.State == "firing" && strings.HasPrefix(alert.Labels.Alertname, "Fencegate") {
			firing = append(firing, api.Alert{
				Name: alert.Labels.Alertname, Severity: alert.Labels.Severity, Summary: alert.Annotations.Summary,
				RunbookURL: alert.Annotations.RunbookURL, Since: api.Time{Time: alert.ActiveAt},
			})
		}
	}
	slices.SortStableFunc(firing, func(a, b api.Alert) int {
		return cmp.Or(rank(a)-rank(b), a.Since.Compare(b.Since.Time))
	})
	return firing[:min(len(firing), alertsMax)], nil
}
