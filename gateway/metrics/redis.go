package metrics

import (
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

var redisSubject = &subject{
	title: "Redis servers that keep leases",
	about: "A gateway shows those that it was started with (`--redis-url`, `--redlock-urls`).",
}

var (
	redisLabels = []Label{
		{Name: "provider", Values: texts(store.ProviderRedis, store.ProviderRedlock)},
		{Name: "server", Open: "its address, or the name that its Sentinels have for it"},
	}
	redisUpFamily = redisSubject.gauge("fencegate_redis_up",
		"1 if the server answered its last call, which is a second old at most.",
		"0: see `fencegate_redis_errors_total`, and the log. redlock needs more than half of its servers.", redisLabels...)
	redisVotingFamily = redisSubject.gauge("fencegate_redis_voting",
		"0 while a server of redlock does not vote: it was started, or lost its data, less than `--redlock-ttl-max` ago, and "+
			"may have lost leases that still run.",
		"0 for less than that time after a restart. No locks are granted while fewer than half of the servers vote.",
		redisLabels...)
	redisCallsFamily  = redisSubject.counter("fencegate_redis_calls_total", "Calls of the server.", "", redisLabels...)
	redisErrorsFamily = redisSubject.counter("fencegate_redis_errors_total", "Calls that failed, by kind.",
		"`timeout`: it is slow, or away (`--redis-timeout`); `full`: `maxmemory`; `wrong_type`: the key of a lock has other "+
			"data; `permission` and `auth`: the rights of its user; `read_only`: a replica.",
		append(redisLabels[:len(redisLabels):len(redisLabels)], Label{Name: "kind", Values: texts(redislease.Kinds...)})...)
)

// WatchRedis shows the servers that keep leases.
func (m *Metrics) WatchRedis(all ...*redislease.Leases) {
	m.registry.onScrape(func(to *readings) {
		for _, of := range all {
			for _, server := range of.Stats() {
				to.redis(string(of.Provider()), server)
			}
		}
	}, redisSubject.families...)
}

func (r *readings) redis(provider string, s redislease.ServerStats) {
	r.flag(redisUpFamily, s.Up, provider, s.Address)
	r.flag(redisVotingFamily, !time.Now().Before(s.QuarantinedUntil), provider, s.Address)
	r.value(redisCallsFamily, float64(s.Calls), provider, s.Address)
	for _, kind := range redislease.Kinds {
		r.value(redisErrorsFamily, float64(s.Errors[kind]), provider, s.Address, string(kind))
	}
}
