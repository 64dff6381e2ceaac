package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/lockedbuffer"
)

// ErrAbsent says that a peer's program is not on this machine; the message names it.
var ErrAbsent = errors.New("not on this machine")

const (
	startTimeout = 30 * time.Second
	// startsMax is how often a start is tried: between finding a free port and listening on it another program may take it.
	startsMax = 3
)

// process is a peer that runs.
type process struct {
	cmd    *exec.Cmd
	output lockedbuffer.Buffer
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
	// ready returns nil once the peer answers on its ports.
	ready func(ctx context.Context, ports []int) error
}

// start runs the command and waits until it is ready. What it wrote is in the error if it does not get there.
func (c command) start(ctx context.Context) (*process, []int, error) {
	path, err := exec.LookPath(c.program)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.program, ErrAbsent)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		p, ports, err := c.startOnce(ctx, path)
		if err == nil {
			return p, ports, nil
		}
		if try == startsMax || ctx.Err() != nil {
			return nil, nil, err
		}
	}
}

func (c command) startOnce(ctx context.Context, path string) (*process, []int, error) {
	ports, err := freePorts(ctx, c.ports)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "fencegate-"+filepath.Base(c.program)+"-")
	if err != nil {
		return nil, nil, err
	}
	if c.prepare != nil {
		if err := c.prepare(dir, ports); err != nil {
			return nil, nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	p := &process{dir: dir, ended: make(chan struct{})}
	p.cmd = exec.Command(path, c.args(dir, ports)...)
	p.cmd.Dir = dir
	p.cmd.Env = withoutSettings(os.Environ(), c.program)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w", c.program, err), os.RemoveAll(dir))
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	if err := c.await(ctx, p, ports); err != nil {
		return nil, nil, errors.Join(err, p.kill())
	}
	return p, ports, nil
}

func (c command) await(ctx context.Context, p *process, ports []int) error {
	for {
		err := c.ready(ctx, ports)
		if err == nil {
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

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the peer, waits for its end, and removes its directory.
func (p *process) kill() error {
	_ = p.cmd.Process.Kill()
	<-p.ended
	return os.RemoveAll(p.dir)
}

// withoutSettings drops what would configure the program by the environment: ETCD_DATA_DIR and the like.
func withoutSettings(environment []string, program string) []string {
	var kept []string
	for _, variable := range environment {
		if !strings.HasPrefix(variable, strings.ToUpper(program)+"_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// freePorts finds ports of the loopback interface that nobody listens on. Each is kept until all are found: the next would be the same.
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
