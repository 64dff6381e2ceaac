// Package kubernetes tests the Helm chart.
package kubernetes
