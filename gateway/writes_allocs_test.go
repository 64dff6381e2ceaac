//go:build !race

package gateway

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// What a write costs in this process is bounded, where nothing is traced and no access log is kept: who adds something for those has it behind a
// test. (The race detector allocates, too.)
func TestLeanWritesAllocate(t *testing.T) {
	for _, c := range []struct {
		name    string
		backend Backend
		most    float64
	}{{"put", accepts, 15}, {"refused", rejects, 19}} {
		gateway, err := New(Config{}, c.backend, store.NewRecorder(nil), NewMetrics("test"))
		if err != nil {
			t.Fatal(err)
		}
		value, body, writer := bytes.Repeat([]byte{'v'}, 256), &rewound{}, discarded{http.Header{}}
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://gateway"+benchPath, body)
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength, request.RemoteAddr = int64(len(value)), "192.0.2.1:4711"
		request.Header.Set("Content-Type", "application/octet-stream")
		request.Header.Set("Fencing-Token", "34.2")
		got := testing.AllocsPerRun(1000, func() {
			body.Reset(value)
			clear(writer.header)
			gateway.ServeHTTP(writer, request)
		})
		if got > c.most {
			t.Errorf("%s: %.0f allocations, at most %.0f", c.name, got, c.most)
		}
	}
}
