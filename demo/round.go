package demo

import (
	"context"
	"slices"
)

// round is one run of a variant: A acquires the lock and is frozen, B takes over, A is thawed.
type round struct {
	workers []string // the command that runs a worker
	variant string
	a, b    Worker
}

// newRound returns a round of the workers A and B on a lock.
func newRound(workers []string, variant, lock, databaseURL string) round {
	worker := Worker{Lock: lock, TTL: demoTTL, DatabaseURL: databaseURL}
	a, b := worker, worker
	a.Name, a.Work = "A", workOfA
	b.Name, b.Work = "B", workOfB
	return round{workers, variant, a, b}
}

// run freezes A while it works, lets B take over and write, and thaws A, which writes.
func (r round) run(ctx context.Context, setup *setup) error {
	a, err := startProcess(ctx, r.args(r.a, setup.urls[0]))
	if err != nil {
		return err
	}
	defer a.kill()
	if err := setup.follow(r.variant, a, "working"); err != nil {
		return err
	}
	if err := a.freeze(ctx); err != nil {
		return err
	}
	setup.print(Event{Event: "frozen", Variant: r.variant, Actor: r.a.Name,
		Text: "is frozen (SIGSTOP) in the middle of it"})

	b, err := startProcess(ctx, r.args(r.b, setup.urls[len(setup.urls)-1]))
	if err != nil {
		return err
	}
	defer b.kill()
	if err := setup.follow(r.variant, b, ""); err != nil {
		return err
	}

	setup.print(Event{Event: "thawed", Variant: r.variant, Actor: r.a.Name,
		Text: "is thawed (SIGCONT) and goes on as if nothing had happened"})
	if err := a.thaw(); err != nil {
		return err
	}
	return setup.follow(r.variant, a, "")
}

func (r round) args(worker Worker, url string) []string {
	return append(slices.Clone(r.workers), "--name", worker.Name, "--url", url, "--lock", worker.Lock,
		"--ttl", worker.TTL.String(), "--work", worker.Work.String(), "--database-url", worker.DatabaseURL)
}
