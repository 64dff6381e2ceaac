package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
)

// process is a worker that runs as an operating-system process of its own.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	events <-chan Event // closed when the process has ended
	ended  chan struct{}
	err    error // how it ended, once ended is closed
}

// startProcess runs a command whose standard output is events, with variables added to its environment.
func startProcess(ctx context.Context, argv, environment []string) (*process, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	events := make(chan Event)
	p := &process{cmd: cmd, in: in, events: events, ended: make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var event Event
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				events <- event
			}
		}
		close(events)
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// freeze stops the process, and returns once the kernel reports that it has stopped.
func (p *process) freeze(ctx context.Context) error { return freeze(ctx, p.cmd.Process) }

// thaw resumes the process.
func (p *process) thaw() error { return thaw(p.cmd.Process) }

// tell lets a worker that waits for it write.
func (p *process) tell() error {
	_, err := io.WriteString(p.in, "\n")
	return err
}

// kill ends the process, even a frozen one, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for range p.events { // so that the reader ends
	}
	_ = p.wait()
}

// wait returns how the process ended. Its events must be read before.
func (p *process) wait() error {
	<-p.ended
	return p.err
}
