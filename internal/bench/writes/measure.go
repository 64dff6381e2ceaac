package writes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Sample is one measurement of one target.
type Sample struct {
	Target    string  `json:"target"`
	Clients   int     `json:"clients"`
	Round     int     `json:"round"`
	Writes    int     `json:"writes"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
}

// measure lets clients write as fast as they can for a duration, each to its own share of the resources. A write that fails ends it.
func measure(ctx context.Context, t target, resources []resource, clients, valueBytes int, duration time.Duration) (Sample, error) {
	writers := make([]writer, clients)
	for client := range writers {
		writers[client] = writer{share(resources, client, clients), make([]byte, valueBytes), rand.NewChaCha8([32]byte{1})}
	}
	load, err := bench.Repeat(ctx, clients, duration, func(ctx context.Context, client, i int) error {
		mine := writers[client]
		_, _ = mine.random.Read(mine.value)
		return t.write(ctx, &mine.resources[i%len(mine.resources)], mine.value)
	})
	if err != nil {
		return Sample{}, fmt.Errorf("%s: %w", t.name, err)
	}
	return Sample{
		Target: t.name, Clients: clients, Writes: len(load.Latencies), PerSecond: load.PerSecond(),
		P50MS: bench.Percentile(load.Latencies, 0.50), P99MS: bench.Percentile(load.Latencies, 0.99),
	}, nil
}

// writer is one client's.
type writer struct {
	resources []resource
	value     []byte
	random    *rand.ChaCha8
}

// share is the part of the resources that is one client's.
func share(resources []resource, client, clients int) []resource {
	return resources[client*len(resources)/clients : (client+1)*len(resources)/clients]
}
