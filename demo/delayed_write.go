package demo

import "context"

// DelayedWrite shows a write that was sent in time, and that the network holds until the lease has expired and another
// worker has written. The outcome is that of [Zombie.Run].
func DelayedWrite(ctx context.Context, config Config) error {
	return config.run(ctx, scenario{failure: &delay{}})
}

type delay struct{ networkFailure }

func (d *delay) strike(ctx context.Context, r *round) error {
	arrived := d.hold()
	if err := r.processA.tell(); err != nil {
		return err
	}
	if err := r.follow(r.processA, "sent"); err != nil {
		return err
	}
	select {
	case <-arrived:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.tell(r.a.Name, Event{Event: "delayed", Text: "waits for the answer: the network holds the request"})
	return nil
}

func (d *delay) heal(_ context.Context, r *round) error {
	r.tell("", Event{Event: "delivered", Text: "the network delivers the request of " + r.a.Name})
	d.pass()
	return nil
}
