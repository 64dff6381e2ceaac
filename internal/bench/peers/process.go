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

	"github.com/fencegate/fencegate/internal/testenv/process"
)

// ErrAbsent says that a peer's program is not on this machine; the message names it.
var ErrAbsent = errors.New("not on this machine")

const (
	startTimeout = 30 * time.Second
	// startsMax is how often a start is tried: between finding a free port and listening on it another program may take
	// it.
	startsMax = 3
)

// Peer is a server that runs, in a process of its own.
type Peer struct {
	// Address is the host and the first port, Version what the server calls its own.
	Address, Version string

	cmd    *exec.Cmd
	output process.Buffer
	dir    string
	ended  chan struct{}
}

// command says how a peer is run: in a directory, with ports.
type command struct {
	program string
	ports   int
	// prepare puts what is needed into the directory; nil: nothing.
	prepare func(dir string, ports []int) error
	args    func(dir string, ports []int) []string
	// ready returns the version once the peer answers on its first port.
	ready func(ctx context.Context, address string) (version string, err error)
}

// start runs the command and waits until it is ready. What it wrote is in the error if it does not get there.
func (c command) start(ctx context.Context) (*Peer, error) {
	path, err := exec.LookPath(c.program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.program, ErrAbsent)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		p, err := c.startOnce(ctx, path)
		if err == nil || try == startsMax || ctx.Err() != nil {
			return p, err
		}
	}
}

func (c command) startOnce(ctx context.Context, path string) (*Peer, error) {
	ports, err := freePorts(ctx, c.ports)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fencegate-"+filepath.Base(c.program)+"-")
	if err != nil {
		return nil, err
	}
	if c.prepare != nil {
		if err := c.prepare(dir, ports); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	p := &Peer{Address: address(ports[0]), dir: dir, ended: make(chan struct{})}
	p.cmd = exec.Command(path, c.args(dir, ports)...)
	p.cmd.Dir = dir
	p.cmd.Env = withoutSettings(os.Environ(), c.program)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.program, err), os.RemoveAll(dir))
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	if err := c.await(ctx, p); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (c command) await(ctx context.Context, p *Peer) (err error) {
	for {
		if p.Version, err = c.ready(ctx, p.Address); err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it was ready: %s\n%s", c.program, p.cmd.ProcessState, &p.output)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", c.program, err, &p.output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// PID is the number of the process.
func (p *Peer) PID() int { return p.cmd.Process.Pid }

// Stop kills the process, waits for its end, and removes its directory.
func (p *Peer) Stop() error {
	_ = p.cmd.Process.Kill()
	<-p.ended
	return os.RemoveAll(p.dir)
}

// withoutSettings drops what would configure the program by the environment: ETCD_DATA_DIR and the like.
func withoutSettings(environment []string, program string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		return strings.HasPrefix(variable, strings.ToUpper(program)+"_")
	})
}

// freePorts finds ports of the loopback interface without a listener. Each is kept until all are found: the next would
// be the same.
func freePorts(ctx context.Context, count int) ([]int, error) {
	if count == 0 {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	others, err := freePorts(ctx, count-1)
	return append(others, listener.Addr().(*net.TCPAddr).Port), err
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// readyTimeout is what a peer has to answer one question whether it is ready.
const readyTimeout = time.Second

// dial connects to a peer that may not listen yet.
func dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: readyTimeout}).DialContext(ctx, "tcp", address)
}

// StartProgram runs a server of ours that listens on the address that its args, made from it, name.
func StartProgram(ctx context.Context, path string, args func(address string) []string) (*Peer, error) {
	return command{program: path, ports: 1,
		args: func(_ string, ports []int) []string { return args(address(ports[0])) },
		ready: func(ctx context.Context, address string) (string, error) {
			connection, err := dial(ctx, address)
			if err != nil {
				return "", err
			}
			return "", connection.Close()
		},
	}.start(ctx)
}
