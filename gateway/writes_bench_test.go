package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/otlptest"
	"github.com/fencegate/fencegate/store"
)

// answered is a backend with fixed results, for measuring the gateway alone.
type answered struct {
	Backend

	result store.Result
}

func (a answered) Commit(_ context.Context, write store.Write) (store.Result, error) {
	if a.result.Err == nil {
		return a.result, nil
	}
	return store.Result{Err: &store.RejectedError{
		Verdict: store.VerdictTokenStale, Reason: "superseded", Resource: write.Resource, Key: write.Key, Token: write.Token,
		Sequence: write.Sequence, GrantedToken: 35, LastToken: 35, LastSequence: 7,
	}}, nil
}

var (
	accepts = answered{result: store.Result{Version: 8}}
	rejects = answered{result: store.Result{Err: errors.New("rejected")}}
)

func newBenchGateway(b *testing.B, backend Backend) *Gateway {
	b.Helper()
	gateway, err := New(Config{}, backend, store.NewRecorder(nil), NewMetrics("bench"))
	if err != nil {
		b.Fatal(err)
	}
	return gateway
}

// BenchmarkPutTraced is BenchmarkPut with tracing, with a ratio of no requests and of all.
func BenchmarkPutTraced(b *testing.B) {
	for name, ratio := range map[string]float64{"none": 0, "each": 1} {
		_, provider := otlptest.Start(b, ratio)
		config := Config{Tracing: store.Tracing{Provider: provider}}
		gateway, err := New(config, accepts, store.NewRecorder(nil), NewMetrics("bench"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { benchHandler(b, gateway) })
	}
}

var emptyHandler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// BenchmarkPut measures a put of 256 bytes, BenchmarkRefused one that is rejected, and BenchmarkEmptyHandler the same
// request without a gateway: over 64 loopback connections from this process, and ("handler") without a connection.
func BenchmarkPut(b *testing.B) { benchWrites(b, newBenchGateway(b, accepts)) }

func BenchmarkRefused(b *testing.B) { benchWrites(b, newBenchGateway(b, rejects)) }

func BenchmarkEmptyHandler(b *testing.B) { benchWrites(b, emptyHandler) }

const benchPath = "/v1/resources/bench/resource-4711/records/key"

func benchWrites(b *testing.B, handler http.Handler) {
	b.Run("handler", func(b *testing.B) { benchHandler(b, handler) })
	b.Run("loopback", func(b *testing.B) { benchLoopback(b, handler) })
}

// discarded is a ResponseWriter without a connection.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header          { return d.header }
func (discarded) Write(body []byte) (int, error) { return len(body), nil }
func (discarded) WriteHeader(int)                {}

type rewound struct{ bytes.Reader }

func (*rewound) Close() error { return nil }

// benchPut returns a function that sends one put to a handler, without a connection.
func benchPut(t testing.TB, handler http.Handler) func() {
	t.Helper()
	value, body, writer := bytes.Repeat([]byte{'v'}, 256), &rewound{}, discarded{http.Header{}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://gateway"+benchPath, body)
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength, request.RemoteAddr = int64(len(value)), "192.0.2.1:4711"
	addHeaders(request.Header, "Content-Type: application/octet-stream", "Fencing-Token: 34.2")
	return func() {
		body.Reset(value)
		clear(writer.header)
		handler.ServeHTTP(writer, request)
	}
}

func benchHandler(b *testing.B, handler http.Handler) {
	put := benchPut(b, handler)
	b.ReportAllocs()
	for b.Loop() {
		put()
	}
}

func benchLoopback(b *testing.B, handler http.Handler) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if gateway, ok := handler.(*Gateway); ok {
			_ = gateway.Serve(ctx, listener)
			return
		}
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
		}
		context.AfterFunc(ctx, func() { _ = server.Close() })
		_ = server.Serve(listener)
	})
	defer serving.Wait()
	defer cancel()

	request := fmt.Appendf(nil, "PUT %s HTTP/1.1\r\nHost: gateway\r\nFencing-Token: 34.2\r\n"+
		"Content-Type: application/octet-stream\r\nContent-Length: 256\r\n\r\n%s", benchPath, bytes.Repeat([]byte{'v'}, 256))
	const connections = 64
	b.ReportAllocs()
	b.SetParallelism(connections)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for pb.Next() {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			if err := skipAnswer(answers); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// skipAnswer reads and discards one answer with a Content-Length.
func skipAnswer(answers *bufio.Reader) error {
	length := 0
	for {
		line, err := answers.ReadSlice('\n')
		if err != nil {
			return err
		}
		if text, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				return err
			}
		}
		if len(line) == 2 {
			_, err := answers.Discard(length)
			return err
		}
	}
}
