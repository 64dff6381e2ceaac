// Package redisprocess runs Redis servers and Sentinels as operating-system processes of their own, for the demo, which
// kills them and shifts their clocks.
package redisprocess

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/lockedbuffer"
)

// ErrNoProgram says that Redis is not installed.
var ErrNoProgram = errors.New("redis-server was not found (Debian: redis-server; macOS: redis)")

const (
	startTimeout = 30 * time.Second
	// commandTimeout bounds one command.
	commandTimeout = 5 * time.Second
	// startsMax is how often a start is tried: another program may take the port that was found free.
	startsMax = 3
)

// Config says how a server is run.
type Config struct {
	// Settings are lines of its redis.conf. The address, and that nothing is written to disk, are set anyway.
	Settings []string
	// Sentinel runs a Sentinel instead.
	Sentinel bool
	// Environment is added to that of this process.
	Environment []string
}

// Process is a server that runs on a free port of the loopback interface.
type Process struct {
	Host, Port string

	cmd    *exec.Cmd
	dir    string
	output lockedbuffer.Buffer
	ended  chan struct{}
}

// Start runs a server and waits until it answers. It returns ErrNoProgram if Redis is not installed.
func Start(ctx context.Context, config Config) (*Process, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		p, err := startOnce(ctx, program, config)
		if err == nil || try == startsMax || ctx.Err() != nil {
			return p, err
		}
	}
}

func startOnce(ctx context.Context, program string, config Config) (*Process, error) {
	dir, err := os.MkdirTemp("", "fencegate-redis-")
	if err != nil {
		return nil, err
	}
	p := &Process{Host: "127.0.0.1", dir: dir, ended: make(chan struct{})}
	if p.Port, err = freePort(ctx, p.Host); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	settings := []string{"bind " + p.Host, "port " + p.Port, `dir "` + dir + `"`}
	args := []string{filepath.Join(dir, "redis.conf")}
	if config.Sentinel {
		args = append(args, "--sentinel")
	} else {
		settings = append(settings, `save ""`, "appendonly no")
	}
	text := strings.Join(append(settings, config.Settings...), "\n") + "\n"
	if err := os.WriteFile(args[0], []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), config.Environment...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.awaitAnswer(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (p *Process) awaitAnswer(ctx context.Context) error {
	for {
		_, err := p.Do(ctx, "PING")
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("redis-server ended: %s\n%s", p.cmd.ProcessState, &p.output)
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w\n%s", err, &p.output)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Address returns the host and the port.
func (p *Process) Address() string { return net.JoinHostPort(p.Host, p.Port) }

// Kill ends the server as a crash does (SIGKILL), waits for its end, and removes its directory.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = os.RemoveAll(p.dir)
}

// Do is Call of this server, which may take 5 s.
func (p *Process) Do(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return Call(ctx, p.Address(), args...)
}

// Call sends a command to the server at an address, on a connection of its own, and returns the answer, which must not be
// an array; "" is also nothing.
func Call(ctx context.Context, address string, args ...string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	command := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	return readAnswer(bufio.NewReader(conn))
}

func readAnswer(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", errors.New(text)
	case '$':
		length, err := strconv.Atoi(text)
		if err != nil || length < 0 {
			return "", err
		}
		value := make([]byte, length)
		_, err = io.ReadFull(from, value)
		return string(value), err
	}
	return text, nil
}

func freePort(ctx context.Context, host string) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}
