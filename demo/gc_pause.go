package demo

import (
	"context"
	"errors"
	"os"
)

// GCPause shows a worker whose own runtime stops, and with it its heartbeat, for longer than its lease: a garbage
// collection waits for a loop that can't be interrupted. The outcome is that of [Zombie.Run].
func GCPause(ctx context.Context, config Config) error {
	return config.Run(ctx, &gcPause{})
}

type gcPause struct {
	NoFailure

	enough *os.File // its first byte tells the loop of A whether it has computed enough
}

func (g *gcPause) Prepare(_ context.Context, r *Round) (err error) {
	g.Stop()
	if g.enough, err = os.CreateTemp("", "fencegate-demo-"); err != nil {
		return err
	}
	r.A.Heartbeat, r.A.Busy = true, g.enough.Name()
	r.environmentOfA = []string{"GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=2"}
	return g.write(0)
}

func (g *gcPause) Heal(context.Context, *Round) error { return g.write(1) }

func (g *gcPause) write(enough byte) error {
	_, err := g.enough.WriteAt([]byte{enough, 0, 0, 0}, 0)
	return err
}

func (g *gcPause) Stop() {
	if g.enough != nil {
		_ = errors.Join(g.enough.Close(), os.Remove(g.enough.Name()))
		g.enough = nil
	}
}
