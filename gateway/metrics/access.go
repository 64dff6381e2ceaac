package metrics

import "github.com/prometheus/client_golang/prometheus"

var accessSubject = &subject{
	title: "Tokens and client certificates",
	about: "A gateway with `--access-file` shows these.",
}

var (
	accessFileFamily = accessSubject.counter("fencegate_access_file_failures_total",
		"Readings of `--access-file` that failed. There is one every 2 s while the file can't be used.",
		"The gateway uses the former version of the file meanwhile. The log says what is wrong.")
	issuerKeysFamily = accessSubject.counter("fencegate_issuer_key_readings_total",
		"Readings of the keys of an issuer of tokens.",
		"`failed`: the former keys stay in use, so tokens of a new key are refused. The log says why.",
		Label{Name: "issuer", Open: "its name in the access file"}, Label{Name: "result", Values: []string{"ok", "failed"}})
)

// accessMetrics count what an auth.Directory reads.
type accessMetrics struct {
	fileFailures prometheus.Counter
	issuerKeys   *prometheus.CounterVec
}

func newAccessMetrics(r registry) accessMetrics {
	return accessMetrics{r.counters(accessFileFamily).WithLabelValues(), r.counters(issuerKeysFamily)}
}

// AccessFileFailed counts a reading of the access file that failed.
func (m *Metrics) AccessFileFailed() { m.access.fileFailures.Inc() }

// IssuerKeysRead counts a reading of the keys of an issuer.
func (m *Metrics) IssuerKeysRead(issuer string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.access.issuerKeys.WithLabelValues(issuer, result).Inc()
}
