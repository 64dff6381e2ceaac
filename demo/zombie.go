package demo

import (
	"context"
	"fmt"
)

// Zombie shows a worker that is frozen until its lease has expired, wakes, and writes.
type Zombie struct {
	Config

	// Service, if set, names another lock service that grants the locks: "etcd". ServiceName describes it. Workers is
	// the command that runs a worker of it, and takes the flags of "demo worker".
	Service, ServiceName string
	Workers              []string
}

// Run runs both variants and prints the result. It returns nil only if the fenced variant kept the value of B and the
// unfenced one lost it, and ErrUnexpected otherwise. If ctx ends before, it returns the cause.
//
// With Gateways, it returns nil after the last round or when ctx ends, and ErrUnexpected as soon as a zombie's write was
// stored.
func (z Zombie) Run(ctx context.Context) error {
	scenario := scenario{failure: frozen{}, workers: z.Workers}
	if z.Service != "" {
		prefix := "demo/" + z.Service + z.Suffix
		scenario.lock = prefix + "/job-%d"
		scenario.fenced = fmt.Sprintf("With the fence: %s grants the lock, every write carries its number, and PostgreSQL "+
			"checks it", z.Service)
		scenario.prepare = func(ctx context.Context, setup *setup) (undo func(), err error) {
			setup.print(Event{Event: "service", Text: "the lock service: " + z.ServiceName})
			return setup.setExternal(ctx, prefix)
		}
	}
	return z.run(ctx, scenario)
}

// frozen freezes A.
type frozen struct{ NoFailure }

func (frozen) Strike(ctx context.Context, r *Round) error {
	if err := r.processA.freeze(ctx); err != nil {
		return err
	}
	r.Tell(r.A.Name, Event{Event: "frozen", Text: "is frozen (SIGSTOP) in the middle of it"})
	return nil
}

func (frozen) Heal(_ context.Context, r *Round) error {
	r.Tell(r.A.Name, Event{Event: "thawed", Text: "is thawed (SIGCONT) and goes on as if nothing had happened"})
	return r.processA.thaw()
}
