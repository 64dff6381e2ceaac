package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
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

// Service is a lock service other than fencegate.
type Service interface {
	// Acquire waits for the lock. The service grants it to another process once this one has been frozen for ttl.
	Acquire(ctx context.Context, lock string, ttl time.Duration) (Grant, error)
}

// Grant is a lock that a Service has granted.
type Grant struct {
	// Token is the number that fencegate takes as fencing token. Number says what it is: "create revision".
	Token  int64
	Number string
}

// acquireFromService is acquire for a Service.
func (w Worker) acquireFromService(ctx context.Context, emit func(Event)) (token int64, err error) {
	emit(Event{Event: "asked", Text: fmt.Sprintf("asks %s for %s, and waits while another has it", w.ServiceName, w.Lock)})
	grant, err := w.Service.Acquire(ctx, w.Lock, w.TTL)
	if err != nil {
		return 0, fmt.Errorf("acquire %s from %s: %w", w.Lock, w.ServiceName, err)
	}
	emit(Event{Event: "granted", Token: grant.Token, Text: fmt.Sprintf(
		"is granted %s by %s with %s %d, and a TTL of %s", w.Lock, w.ServiceName, grant.Number, grant.Token, w.TTL)})
	return grant.Token, nil
}

// setExternal sets the policy that another service issues the tokens of the name and all below. The func that it
// returns removes the policy.
func (s *setup) setExternal(ctx context.Context, prefix string) (remove func(), err error) {
	client, err := s.connect(s.urls[0])
	if err != nil {
		return nil, err
	}
	if _, err = admin.New(client).PutPolicy(ctx, prefix, api.PolicyRequest{Authority: "external"}); err != nil {
		client.Close()
		return nil, err
	}
	s.print(Event{Event: "policy", Text: "the policy of " + prefix + ": authority external"})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = admin.New(client).DeletePolicy(ctx, prefix)
		client.Close()
	}, nil
}
