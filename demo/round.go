//go:build unix

package demo

import "context"

// play is one telling: A takes the lock and is frozen, B takes over, A comes back.
type play struct {
	program, variant string
	a, b             Worker
}

// playing is the play of the workers A and B about a lock.
func playing(program, variant, lock, databaseURL string) play {
	worker := Worker{Lock: lock, TTL: demoTTL, DatabaseURL: databaseURL}
	a, b := worker, worker
	a.Name, a.Work = "A", workOfA
	b.Name, b.Work = "B", workOfB
	return play{program, variant, a, b}
}

// act is the story itself: A is frozen while it works, B takes over and writes, A is thawed and writes.
func (p play) act(ctx context.Context, stage *stage) error {
	a, err := startProcess(ctx, p.args(p.a, stage.urls[0]))
	if err != nil {
		return err
	}
	defer a.kill()
	if err := stage.follow(p.variant, a, "working"); err != nil {
		return err
	}
	if err := a.freeze(ctx); err != nil {
		return err
	}
	stage.tell(Event{Event: "frozen", Variant: p.variant, Actor: p.a.Name, Text: "is frozen (SIGSTOP) in the middle of it"})

	b, err := startProcess(ctx, p.args(p.b, stage.urls[len(stage.urls)-1]))
	if err != nil {
		return err
	}
	defer b.kill()
	if err := stage.follow(p.variant, b, ""); err != nil {
		return err
	}

	stage.tell(Event{Event: "thawed", Variant: p.variant, Actor: p.a.Name, Text: "is thawed (SIGCONT) and goes on as if nothing had happened"})
	if err := a.thaw(); err != nil {
		return err
	}
	return stage.follow(p.variant, a, "")
}

func (p play) args(worker Worker, url string) []string {
	return []string{
		p.program, "demo", "worker", "--name", worker.Name, "--url", url, "--lock", worker.Lock,
		"--ttl", worker.TTL.String(), "--work", worker.Work.String(), "--database-url", worker.DatabaseURL,
	}
}
