// Package kubernetes tests the Helm chart, and keeps fencegate.yaml, which is the chart with its defaults.
package kubernetes
