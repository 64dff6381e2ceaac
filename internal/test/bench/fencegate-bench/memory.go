//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
)

type memoryCmd struct {
	rig.Servers

	Measure []string      `help:"What to measure: ${enum}." enum:"idle,waiter,waiter-http2,stream,session" default:"idle,waiter,waiter-http2,stream,session"`
	Count   int           `help:"How many of each a gateway has." default:"10000"`
	Settle  time.Duration `help:"How long nothing happens before the memory is read." default:"20s"`
}

// Validate is called by kong.
func (c memoryCmd) Validate() error {
	if c.Count < groupMax || c.Settle < 0 {
		return fmt.Errorf("--count must be at least %d", groupMax)
	}
	return nil
}

func (c *memoryCmd) table() string { return fmt.Sprintf("memory of a gateway that has %d", c.Count) }

// Run measures each kind at a gateway that did nothing before. Each connection needs two open files.
func (c *memoryCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, rig.Pace{}, rig.Private{}, func(r *rig.Rig) error {
		for _, kind := range c.Measure {
			if err := c.measureKind(ctx, r, kind); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
		}
		return nil
	}, nil)
}

// measureKind notes what one of a kind adds to the memory of a gateway.
func (c *memoryCmd) measureKind(ctx context.Context, r *rig.Rig, kind string) (err error) {
	profiles, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	gateway, err := r.Gateway(ctx, "--debug-listen", profiles, "--caller-waiting-max", "0", "--caller-streams-max", "0",
		"--address-connections-max", "0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel(nil) // before the gateway ends: it waits for its clients
		running.Wait()
		err = errors.Join(err, gateway.Stop())
	}()
	lock := r.Prefix + "/memory/" + kind
	holder, err := gatewayClient{gateway.URL, "bench-holder", leaseTTL, false}.locker()
	if err == nil {
		_, err = holder.hold(ctx, lock)
	}
	if err != nil {
		return err
	}
	before, err := c.read(ctx, gateway, profiles)
	if err != nil {
		return err
	}
	crowd := memoryCrowd{kind: kind, base: gateway.URL, lock: lock, running: &running, cancel: cancel}
	for made := 0; made < c.Count; made += groupMax {
		if err := crowd.add(ctx, min(groupMax, c.Count-made)); err != nil {
			return err
		}
		if strings.HasPrefix(kind, "waiter") {
			if err := awaitQueue(ctx, holder, lock, min(made+groupMax, c.Count), 5*time.Millisecond); err != nil {
				return err
			}
		}
	}
	after, err := c.read(ctx, gateway, profiles)
	if err != nil {
		return err
	}
	each := func(name string, of func(used) float64) rig.Value {
		return rig.Value{Name: "KiB each, " + name, Of: (of(after) - of(before)) / 1024 / float64(c.Count)}
	}
	r.Note(c.table(), kind, "fencegate", "", 1, each("resident", func(u used) float64 { return u.resident }),
		each("heap", func(u used) float64 { return u.heap }), each("stacks", func(u used) float64 { return u.stacks }))
	return context.Cause(ctx)
}

// used is the memory of a gateway, in bytes: what the kernel counts, and what is in use after collections.
type used struct{ resident, heap, stacks float64 }

// read returns what memory a gateway uses: as the kernel counts it, with the garbage of its clients' arrival, since that
// is what a limit must leave room for; and what is in use after some collections, since a stack shrinks by half at a time.
func (c *memoryCmd) read(ctx context.Context, gateway *gateway.Process, profiles string) (u used, err error) {
	stat, err := rig.ProcessStat(gateway.PID())
	if err != nil {
		return used{}, err
	}
	for range 4 {
		if !pause(ctx, c.Settle/4) {
			return used{}, ctx.Err()
		}
		if u, err = collected(ctx, profiles); err != nil {
			return used{}, err
		}
	}
	u.resident = float64(stat.ResidentMemory())
	return u, nil
}

// collected collects the garbage of a gateway, and reads the figures at the end of the profile of its heap.
func collected(ctx context.Context, profiles string) (u used, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profiles+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return used{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return used{}, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		for prefix, to := range map[string]*float64{"# HeapAlloc = ": &u.heap, "# Stack = ": &u.stacks} {
			if figure, found := strings.CutPrefix(lines.Text(), prefix); found {
				_, err = fmt.Sscan(figure, to)
			}
		}
	}
	return u, err
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// memoryCrowd makes clients of a kind, each of which has a connection of its own, or a stream of a shared one.
type memoryCrowd struct {
	kind, base, lock string
	running          *sync.WaitGroup
	cancel           context.CancelCauseFunc
}

// add makes that many clients, and returns when each has an answer, or has sent its acquire.
func (m *memoryCrowd) add(ctx context.Context, count int) error {
	method, path, body := http.MethodPost, "/v1/locks/"+m.lock+"/acquire", `{"owner_id":"bench","ttl_ms":30000,"wait_ms":600000}`
	switch m.kind {
	case "idle":
		method, path, body = http.MethodGet, "/healthz", ""
	case "stream":
		method, path, body = http.MethodGet, "/v1/locks/"+m.lock+"/watch", ""
	case "session":
		path, body = "/v1/sessions", `{"owner_id":"bench","ttl_ms":3600000}`
	}
	var shared *http.Client
	var sent sync.WaitGroup
	for range count {
		client := shared
		if client == nil {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(m.kind != "waiter-http2")
			transport.Protocols.SetUnencryptedHTTP2(m.kind == "waiter-http2")
			client = &http.Client{Transport: transport}
			context.AfterFunc(ctx, transport.CloseIdleConnections)
			if m.kind == "waiter-http2" || m.kind == "session" {
				shared = client
			}
		}
		sent.Add(1)
		done := sync.OnceFunc(sent.Done)
		trace := &httptrace.ClientTrace{}
		if strings.HasPrefix(m.kind, "waiter") {
			trace.WroteRequest = func(httptrace.WroteRequestInfo) { done() }
		}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, m.base+path,
			bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		m.running.Go(func() {
			defer done()
			if err := m.send(client, request, done); err != nil && ctx.Err() == nil {
				m.cancel(err)
			}
		})
	}
	sent.Wait()
	return context.Cause(ctx)
}

// send sends a request. It reads the answer of a stream until ctx ends.
func (m *memoryCrowd) send(client *http.Client, request *http.Request, done func()) error {
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", request.Method, request.URL, answer.Status)
	}
	if m.kind == "stream" {
		if _, err := answer.Body.Read(make([]byte, 1)); err != nil {
			return err
		}
		done()
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
