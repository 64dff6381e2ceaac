package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// BenchmarkBulk sends lines for 1,000 resources over one stream. It reports the CPU time of this process per line: the
// gateway's and that of a client that discards the verdicts.
func BenchmarkBulk(b *testing.B) {
	h := newGateway(b, Config{}, store.Config{DatabaseURL: pgtest.Migrated(b)})
	h.client = serve(b, h.gateway)
	const resources = 1000
	var leases [resources]api.Lease
	for i := range leases {
		leases[i] = h.acquire(b, fmt.Sprintf("accounts/%d", i), "bench")
	}
	value := `{"text":"` + strings.Repeat("x", 240) + `"}`
	sequence := int64(0)
	var body strings.Builder
	for b.Loop() {
		b.StopTimer()
		body.Reset()
		sent := 0
		for range 20 {
			sequence++
			for _, lease := range leases {
				body.WriteString(putLine(lease, sequence, "k", value))
				sent++
			}
		}
		b.StartTimer()
		begun, cpu := time.Now(), cpuTime(b)
		response, err := h.http.Post(h.base+"/v1/writes", api.BulkContentType, strings.NewReader(body.String()))
		if err != nil {
			b.Fatal(err)
		}
		received, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			b.Fatal(received, err, response.Status)
		}
		b.ReportMetric(float64(sent)/time.Since(begun).Seconds(), "lines/s")
		b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(sent), "cpu-µs/line")
	}
}

// cpuTime is the CPU time of this process so far.
func cpuTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
