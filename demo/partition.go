package demo

import "context"

// Partition shows a worker that the network cuts off. Its heartbeats fail and its lease expires, but it goes on. What it
// has sent arrives when the network is back. The outcome is that of [Zombie.Run].
func Partition(ctx context.Context, config Config) error {
	return config.run(ctx, scenario{failure: &partition{}})
}

type partition struct{ networkFailure }

func (p *partition) prepare(ctx context.Context, r *round) error {
	r.a.Heartbeat = true
	return p.networkFailure.prepare(ctx, r)
}

func (p *partition) strike(_ context.Context, r *round) error {
	p.hold()
	r.tell(r.a.Name, Event{Event: "cut", Text: "is cut off by the network"})
	return r.follow(r.processA, "lost")
}

func (p *partition) heal(_ context.Context, r *round) error {
	if err := r.processA.tell(); err != nil {
		return err
	}
	if err := r.follow(r.processA, "sent"); err != nil {
		return err
	}
	r.tell(r.a.Name, Event{Event: "healed", Text: "is reached by the network again, which delivers what it has kept"})
	p.pass()
	return nil
}
