package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

// Round is one run of a variant: A acquires the lock, something goes wrong, B takes over and writes, and A writes.
type Round struct {
	*setup

	Lock string
	A, B Worker

	failure        Failure
	workers        []string // the command that runs a worker
	environmentOfA []string // added to the environment of A
	variant        string
	processA       *process
}

// newRound returns a round of the workers A and B on a lock.
func newRound(setup *setup, scenario scenario, variant, lock, databaseURL string) *Round {
	worker := Worker{Lock: lock, TTL: demoTTL, DatabaseURL: databaseURL}
	a, b := worker, worker
	a.Name, a.Work, a.GatewayURL = "A", workOfA, setup.urls[0]
	b.Name, b.Work, b.GatewayURL = "B", workOfB, setup.urls[len(setup.urls)-1]
	return &Round{
		setup: setup, failure: scenario.failure, workers: scenario.workers, variant: variant, Lock: lock, A: a, B: b,
	}
}

// run runs A until it works, B from then on to its end, and A to its end.
func (r *Round) run(ctx context.Context) (err error) {
	if err := r.failure.Prepare(ctx, r); err != nil {
		return err
	}
	if r.processA, err = startProcess(ctx, r.args(r.A), slices.Concat(r.environment, r.environmentOfA)); err != nil {
		return err
	}
	defer r.processA.kill()
	if err := r.follow(r.processA, "working"); err != nil {
		return err
	}
	if err := r.failure.Strike(ctx, r); err != nil {
		return err
	}

	b, err := startProcess(ctx, r.args(r.B), r.environment)
	if err != nil {
		return err
	}
	defer b.kill()
	if err := r.follow(b, "working"); err != nil {
		return err
	}
	if err := r.failure.Taken(ctx, r); err != nil {
		return err
	}
	if err := r.follow(b, ""); err != nil {
		return err
	}

	if err := r.failure.Heal(ctx, r); err != nil {
		return err
	}
	return r.follow(r.processA, "")
}

// runAndShow runs the round under a title, and returns what is stored in the end.
func (r *Round) runAndShow(
	ctx context.Context, title string, stored func(ctx context.Context, resource string) (string, error),
) (string, error) {
	r.Tell("", Event{Event: "round", Text: title})
	if err := r.run(ctx); err != nil {
		return "", err
	}
	value, err := stored(ctx, r.Lock)
	if err == nil {
		r.Tell("", Event{Event: "stored", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

// Tell prints an event of this variant.
func (r *Round) Tell(actor string, event Event) {
	event.Variant, event.Actor = r.variant, actor
	r.print(event)
}

// FollowA prints the events of A up to the one named until.
func (r *Round) FollowA(until string) error { return r.follow(r.processA, until) }

// ReleaseA lets A write, if A is Told to.
func (r *Round) ReleaseA() error { return r.processA.tell() }

// follow prints the events of a worker up to the one named until, or up to its end.
func (r *Round) follow(p *process, until string) error { return r.setup.follow(r.variant, p, until) }

func (r *Round) args(worker Worker) []string {
	args := append(slices.Clone(r.workers), "--name", worker.Name, "--url", worker.GatewayURL, "--lock", worker.Lock,
		"--ttl", worker.TTL.String(), "--work", worker.Work.String(), "--database-url", worker.DatabaseURL)
	for flag, value := range map[string]string{
		"--gateway-via": worker.GatewayVia, "--database-via": worker.DatabaseVia, "--busy": worker.Busy,
		"--jobs": worker.Jobs,
	} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	for flag, set := range map[string]bool{"--heartbeat": worker.Heartbeat, "--told": worker.Told} {
		if set {
			args = append(args, flag)
		}
	}
	return args
}

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
	cmd.SysProcAttr = ownGroup()
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
