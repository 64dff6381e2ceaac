// Package deploy is what docker-compose.yml mounts: Prometheus with the alerts, Grafana with the dashboards, the
// proxy's configuration. It has no code but its tests, which run the real programs on these files: promtool, Prometheus
// and HAProxy before real gateways.
package deploy
