package demo

import (
	"context"
	"fmt"
	"slices"
)

// round is one run of a variant: A acquires the lock, something goes wrong, B takes over and writes, and A writes.
type round struct {
	*setup

	failure        failure
	workers        []string // the command that runs a worker
	environmentOfA []string // added to the environment of A
	variant        string
	lock           string
	a, b           Worker
	processA       *process
}

// newRound returns a round of the workers A and B on a lock.
func newRound(setup *setup, scenario scenario, variant, lock, databaseURL string) *round {
	worker := Worker{Lock: lock, TTL: demoTTL, DatabaseURL: databaseURL}
	a, b := worker, worker
	a.Name, a.Work, a.GatewayURL = "A", workOfA, setup.urls[0]
	b.Name, b.Work, b.GatewayURL = "B", workOfB, setup.urls[len(setup.urls)-1]
	return &round{
		setup: setup, failure: scenario.failure, workers: scenario.workers, variant: variant, lock: lock, a: a, b: b,
	}
}

// run runs A until it works, B from then on to its end, and A to its end.
func (r *round) run(ctx context.Context) (err error) {
	if err := r.failure.prepare(ctx, r); err != nil {
		return err
	}
	if r.processA, err = startProcess(ctx, r.args(r.a), slices.Concat(r.environment, r.environmentOfA)); err != nil {
		return err
	}
	defer r.processA.kill()
	if err := r.follow(r.processA, "working"); err != nil {
		return err
	}
	if err := r.failure.strike(ctx, r); err != nil {
		return err
	}

	b, err := startProcess(ctx, r.args(r.b), r.environment)
	if err != nil {
		return err
	}
	defer b.kill()
	if err := r.follow(b, "working"); err != nil {
		return err
	}
	if err := r.failure.taken(ctx, r); err != nil {
		return err
	}
	if err := r.follow(b, ""); err != nil {
		return err
	}

	if err := r.failure.heal(ctx, r); err != nil {
		return err
	}
	return r.follow(r.processA, "")
}

// runAndShow runs the round under a title, and returns what is stored in the end.
func (r *round) runAndShow(
	ctx context.Context, title string, stored func(ctx context.Context, resource string) (string, error),
) (string, error) {
	r.tell("", Event{Event: "round", Text: title})
	if err := r.run(ctx); err != nil {
		return "", err
	}
	value, err := stored(ctx, r.lock)
	if err == nil {
		r.tell("", Event{Event: "stored", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

// tell prints an event of this variant.
func (r *round) tell(actor string, event Event) {
	event.Variant, event.Actor = r.variant, actor
	r.print(event)
}

// follow prints the events of a worker up to the one named until, or up to its end.
func (r *round) follow(p *process, until string) error { return r.setup.follow(r.variant, p, until) }

func (r *round) args(worker Worker) []string {
	args := append(slices.Clone(r.workers), "--name", worker.Name, "--url", worker.GatewayURL, "--lock", worker.Lock,
		"--ttl", worker.TTL.String(), "--work", worker.Work.String(), "--database-url", worker.DatabaseURL)
	for flag, value := range map[string]string{
		"--gateway-via": worker.GatewayVia, "--database-via": worker.DatabaseVia, "--busy": worker.Busy,
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
