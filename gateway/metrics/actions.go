package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

var actionsFamily = httpSubject.counter("fencegate_admin_actions_total",
	"Actions of administrators that this gateway did. `GET /v1/audit` has each of them.",
	"`lease_broken` and `fence_set` override the fence of a client: rare in a healthy system.",
	Label{Name: "action", Values: []string{
		"policy_set", "policy_deleted", "lease_broken", "fence_set", "key_created", "key_rotated", "key_revoked",
	}})

func newActions(r registry) *prometheus.CounterVec {
	counters := r.counters(actionsFamily)
	for _, action := range actionsFamily.Labels[0].Values {
		counters.WithLabelValues(action)
	}
	return counters
}

// AdminAction counts an action of an administrator.
func (m *Metrics) AdminAction(action string) { m.actions.WithLabelValues(action).Inc() }
