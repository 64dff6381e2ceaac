// Package deploy has the files that docker-compose.yml mounts: Prometheus with the alerts, Grafana with the dashboards,
// the proxy's configuration. The only code in Go is tests, which run
// the real programs on these files: promtool, Prometheus and HAProxy before real gateways.
package deploy
