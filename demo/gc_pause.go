package demo

import (
	"context"
	"errors"
	"os"
)

// GCPause shows a worker whose own runtime stops, and with it its heartbeat, for longer than its lease: a garbage
// collection waits for a loop that can't be interrupted. The outcome is that of [Zombie.Run].
func GCPause(ctx context.Context, config Config) error {
	return config.run(ctx, scenario{failure: &gcPause{}})
}

type gcPause struct {
	noFailure

	enough *os.File // its first byte tells the loop of A whether it has computed enough
}

func (g *gcPause) prepare(_ context.Context, r *round) (err error) {
	g.stop()
	if g.enough, err = os.CreateTemp("", "fencegate-demo-"); err != nil {
		return err
	}
	r.a.Heartbeat, r.a.Busy = true, g.enough.Name()
	r.environmentOfA = []string{"GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=2"}
	return g.write(0)
}

func (g *gcPause) heal(context.Context, *round) error { return g.write(1) }

func (g *gcPause) write(enough byte) error {
	_, err := g.enough.WriteAt([]byte{enough, 0, 0, 0}, 0)
	return err
}

func (g *gcPause) stop() {
	if g.enough != nil {
		_ = errors.Join(g.enough.Close(), os.Remove(g.enough.Name()))
		g.enough = nil
	}
}
