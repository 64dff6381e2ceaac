// Package gateway runs "fencegate serve" as an operating-system process of its own: for the demo, for benchmarks whose
// load must not share the gateway's process, and for tests that freeze and kill it.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// startTimeout is long enough for a machine that is busy. A gateway that fails ends before.
const startTimeout = 2 * time.Minute

// Process is a gateway that runs.
type Process struct {
	URL string

	cmd   *exec.Cmd
	log   *process.Buffer
	dir   string
	ended chan struct{}
	err   error
}

// Run runs program with "serve", a free port of the loopback interface and args, and waits until it serves. What it
// logs is kept, and is in the error if it does not.
func Run(ctx context.Context, program string, args ...string) (*Process, error) {
	dir, err := os.MkdirTemp("", "fencegate-gateway-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(dir, "ready")
	p := &Process{dir: dir, log: &process.Buffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0", "--ready-file", ready}, args...)...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the gateway: %w", err), os.RemoveAll(dir))
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if url, err := os.ReadFile(ready); err == nil {
				p.URL = strings.TrimSpace(string(url))
				return p, nil
			}
		case <-p.ended:
			return nil, errors.Join(fmt.Errorf("the gateway ended before it served: %w\n%s", p.err, p.log), os.RemoveAll(dir))
		case <-ctx.Done():
			p.Kill()
			return nil, fmt.Errorf("the gateway does not serve: %w\n%s", ctx.Err(), p.log)
		}
	}
}

// Serve runs fencegate, built from this tree without the race detector, as "serve" with args on a database, until the
// test ends. If the test fails, it shows the gateway's log.
func Serve(t testing.TB, databaseURL string, args ...string) *Process {
	t.Helper()
	return ServeBy(t, process.Build(t), databaseURL, args...)
}

// ServeBy is Serve for another build of fencegate.
func ServeBy(t testing.TB, program, databaseURL string, args ...string) *Process {
	t.Helper()
	args = append([]string{"--database-url", databaseURL}, args...)
	p, err := Run(await.Context(t), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s logged:\n%s", p.URL, p.Log())
		}
	})
	return p
}

// Stop sends SIGTERM, waits for the end, and returns how the gateway ended: nil is exit code 0.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.wait()
}

// Kill ends the gateway as a crash does (SIGKILL), and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.wait()
}

// Signal sends a signal.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Log is what the gateway has written to standard error.
func (p *Process) Log() string { return p.log.String() }

func (p *Process) wait() error {
	<-p.ended
	return errors.Join(p.err, os.RemoveAll(p.dir))
}
