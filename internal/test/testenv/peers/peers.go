// Package peers runs services that fencegate is measured beside or runs with: each as a process of its own, with a
// directory of its own that goes when it ends, on free ports of the loopback interface. What is not on the machine is
// [ErrAbsent]; nothing is installed.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// ErrAbsent says that a peer's program is not on this machine; the message names it.
var ErrAbsent = errors.New("not on this machine")

const (
	startTimeout = 30 * time.Second
	// readyTimeout is what a peer has to answer one question whether it is ready.
	readyTimeout = time.Second
)

// Peer is a server in a process of its own.
type Peer struct {
	// Address is the first one, Version what the server calls its own.
	Address, Version string

	of        command
	path      string
	addresses []string
	cmd       *exec.Cmd
	output    process.Buffer
	dir       string
	ended     chan struct{}
}

// command says how a peer is run: in a directory, at addresses.
type command struct {
	program string
	// addresses is how many it listens on.
	addresses int
	// prepare puts what is needed into the directory of a server at the first address; nil: nothing.
	prepare func(dir, address string) error
	args    func(dir string, addresses []string) []string
	// ready returns the version once the peer answers at its first address.
	ready func(ctx context.Context, address string) (version string, err error)
}

// start runs the command and waits until it is ready. What it wrote is in the error if it does not get there.
func (c command) start(ctx context.Context) (*Peer, error) {
	path, err := exec.LookPath(c.program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.program, ErrAbsent)
	}
	addresses := make([]string, c.addresses)
	for i := range addresses {
		if addresses[i], err = network.FindAddress(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "fencegate-"+filepath.Base(c.program)+"-")
	if err != nil {
		return nil, err
	}
	p := &Peer{Address: addresses[0], of: c, path: path, addresses: addresses, dir: dir}
	if c.prepare != nil {
		err = c.prepare(dir, addresses[0])
	}
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Start runs the server again after Kill, at the same addresses, and returns when it is ready.
func (p *Peer) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd, ended := exec.Command(p.path, p.of.args(p.dir, p.addresses)...), make(chan struct{})
	cmd.Dir, cmd.Env = p.dir, withoutSettings(os.Environ(), p.of.program)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.of.program, err)
	}
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	for {
		version, err := p.of.ready(ctx, p.Address)
		if err == nil {
			p.Version = version
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended before it was ready: %s\n%s", p.of.program, cmd.ProcessState, &p.output)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.of.program, err, &p.output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// PID is the number of the process.
func (p *Peer) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Peer) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Kill ends the process as kill -9 does, and waits for its end.
func (p *Peer) Kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Stop kills the process, waits for its end, and removes its directory.
func (p *Peer) Stop() error {
	p.Kill()
	return os.RemoveAll(p.dir)
}

// withoutSettings drops what would configure the program by the environment: ETCD_DATA_DIR and the like.
func withoutSettings(environment []string, program string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		return strings.HasPrefix(variable, strings.ToUpper(program)+"_")
	})
}

// listens is ready as soon as the peer accepts connections.
func listens(ctx context.Context, address string) (string, error) {
	connection, err := (&net.Dialer{Timeout: readyTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	return "", connection.Close()
}

// StartProgram runs a server of ours that listens on the address that its args, made from it, name.
func StartProgram(ctx context.Context, path string, args func(address string) []string) (*Peer, error) {
	return command{program: path, addresses: 1, ready: listens,
		args: func(_ string, addresses []string) []string { return args(addresses[0]) }}.start(ctx)
}
