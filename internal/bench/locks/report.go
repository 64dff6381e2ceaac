package locks

import "github.com/fencegate/fencegate/internal/bench"

// Report is a run: what was measured where, and every sample.
type Report struct {
	bench.Environment
	bench.Participants

	WakeUps []WakeUpSample `json:"wake_ups"`
	Cycles  []CycleSample  `json:"cycles"`
	// Leases are the providers of leases, and libraries, with Redis's persistence off or, if RedisFsync, with each change on
	// disk.
	Leases       []CycleSample       `json:"leases"`
	RedisFsync   bool                `json:"redis_fsync"`
	Transactions []TransactionSample `json:"transactions"`
	Crowds       []CrowdSample       `json:"crowds"`
}

// skip notes what is not measured.
func (r *Report) skip(config Config, what, why string) {
	r.Skipped[what] = why
	config.progress("skipped: %s: %s", what, why)
}

// WakeUpLine is a service over the rounds; Ratio is its median hand-off to etcd's within each round.
type WakeUpLine struct {
	Service             string
	HandOffs            int // of all rounds
	P50MS, P99MS, Ratio bench.Spread
}

// WakeUpLines summarizes the wake-ups.
func (r Report) WakeUpLines() []WakeUpLine {
	groups := bench.GroupBy(r.WakeUps, func(s WakeUpSample) string { return s.Service })
	p50 := func(s WakeUpSample) float64 { return s.P50MS }
	lines := make([]WakeUpLine, len(groups.Keys))
	for i, name := range groups.Keys {
		medians := groups.Values(name, p50)
		lines[i] = WakeUpLine{
			Service: name, P50MS: bench.SpreadOf(medians),
			P99MS: bench.SpreadOf(groups.Values(name, func(s WakeUpSample) float64 { return s.P99MS })),
			Ratio: bench.SpreadOf(bench.Ratios(medians, groups.Values(nameEtcd, p50))),
		}
		for _, count := range groups.Values(name, func(s WakeUpSample) float64 { return float64(s.HandOffs) }) {
			lines[i].HandOffs += int(count)
		}
	}
	return lines
}

// CycleLine is a service with a number of clients over the rounds; Ratio is its rate to the base's within each round.
type CycleLine struct {
	Locks, Operation, Service      string
	Clients                        int
	PerSecond, P50MS, P99MS, Ratio bench.Spread
}

// CycleLines summarizes the cycles. The base is etcd.
func (r Report) CycleLines() []CycleLine { return cycleLines(r.Cycles, nameEtcd) }

// LeaseLines summarizes the leases. The base is redislock.
func (r Report) LeaseLines() []CycleLine { return cycleLines(r.Leases, nameRedislock) }

func cycleLines(samples []CycleSample, base string) []CycleLine {
	type key struct {
		locks, operation, service string
		clients                   int
	}
	groups := bench.GroupBy(samples, func(s CycleSample) key { return key{s.Locks, s.Operation, s.Service, s.Clients} })
	perSecond := func(s CycleSample) float64 { return s.PerSecond }
	lines := make([]CycleLine, len(groups.Keys))
	for i, k := range groups.Keys {
		rates := groups.Values(k, perSecond)
		lines[i] = CycleLine{
			Locks: k.locks, Operation: k.operation, Service: k.service, Clients: k.clients, PerSecond: bench.SpreadOf(rates),
			P50MS: bench.SpreadOf(groups.Values(k, func(s CycleSample) float64 { return s.P50MS })),
			P99MS: bench.SpreadOf(groups.Values(k, func(s CycleSample) float64 { return s.P99MS })),
			Ratio: bench.SpreadOf(bench.Ratios(rates, groups.Values(key{k.locks, k.operation, base, k.clients}, perSecond))),
		}
	}
	return lines
}

// grantsPerSecond is the figure that Goals compares, too.
const grantsPerSecond = "grants/s while it drains"

// CrowdLine is one figure of the crowds over the rounds.
type CrowdLine struct {
	Figure string
	bench.Spread
}

// CrowdLines summarizes the crowds. What is of each gateway is taken as one: the spread is over rounds and gateways.
// Without a figure in any round there is no line.
func (r Report) CrowdLines() []CrowdLine {
	figures := []struct {
		name string
		of   func(CrowdSample) []float64
	}{
		{"seconds until all wait", func(s CrowdSample) []float64 { return []float64{s.QueueSeconds} }},
		{"gateway's memory before, MiB", func(s CrowdSample) []float64 { return mebibytes(s.ResidentBeforeKiB) }},
		{"gateway's memory, MiB", func(s CrowdSample) []float64 { return mebibytes(s.ResidentKiB) }},
		{"gateway's memory per waiter, KiB", func(s CrowdSample) []float64 { return s.KiBPerWaiter }},
		{"transactions/s, nobody waits", func(s CrowdSample) []float64 { return []float64{s.Empty.TransactionsPerSecond} }},
		{"transactions/s, all wait", func(s CrowdSample) []float64 { return []float64{s.Idle.TransactionsPerSecond} }},
		{"PostgreSQL's CPU, nobody waits, %", func(s CrowdSample) []float64 { return percent(s.Empty.PostgresCPU) }},
		{"PostgreSQL's CPU, all wait, %", func(s CrowdSample) []float64 { return percent(s.Idle.PostgresCPU) }},
		{"both gateways' CPU, nobody waits, %", func(s CrowdSample) []float64 { return percent(&s.Empty.GatewaysCPU) }},
		{"both gateways' CPU, all wait, %", func(s CrowdSample) []float64 { return percent(&s.Idle.GatewaysCPU) }},
		{"seconds to drain", func(s CrowdSample) []float64 { return []float64{s.DrainSeconds} }},
		{grantsPerSecond, func(s CrowdSample) []float64 { return []float64{s.GrantsPerSecond} }},
	}
	var lines []CrowdLine
	for _, figure := range figures {
		var values []float64
		for _, sample := range r.Crowds {
			values = append(values, figure.of(sample)...)
		}
		if len(values) > 0 {
			lines = append(lines, CrowdLine{figure.name, bench.SpreadOf(values)})
		}
	}
	return lines
}

func mebibytes(kib []float64) []float64 {
	var values []float64
	for _, value := range kib {
		values = append(values, value/1024)
	}
	return values
}

// percent of one CPU.
func percent(share *float64) []float64 {
	if share == nil {
		return nil
	}
	return []float64{*share * 100}
}
