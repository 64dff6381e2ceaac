package redislease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// dueMax is how many leases one look asks for.
	dueMax = 500
	// lockLeasesMax bounds the leases on one lock: there is one, or none.
	lockLeasesMax = 10
	// lookTimeoutMin bounds the answer of a server about so many leases.
	lookTimeoutMin = time.Second
	// databaseTimeout bounds a statement of a look.
	databaseTimeout = 10 * time.Second
	// probeInterval is the time between two probes of a server, and of the connection for published releases.
	probeInterval = time.Second
)

// Run listens for releases, probes the servers, applies the restart rule, and reports to the database which leases have
// expired, until ctx ends. It passes errors to onError, each kind of a server at most once a minute, and goes on.
func (l *Leases) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	for _, s := range l.servers {
		s.reportTo(onError)
		running.Go(func() { l.probe(ctx, s) })
		running.Go(func() { l.listen(ctx, s) })
	}
	running.Go(func() {
		timing.Every(ctx, l.config.LookInterval, onError, func() error { return l.settleDue(ctx) })
	})
	running.Wait()
}

// probe keeps the stats of a server up to date, and with several servers its marker. The server counts its failures.
func (l *Leases) probe(ctx context.Context, s *server) {
	for ctx.Err() == nil {
		l.probeOnce(ctx, s)
		timing.Sleep(ctx, probeInterval)
	}
}

func (l *Leases) probeOnce(ctx context.Context, s *server) {
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	if len(l.servers) == 1 {
		if err := s.client.Ping(ctx).Err(); ctx.Err() == nil {
			_ = s.record(err)
		}
		return
	}
	marked, err := s.run(ctx, markScript, []string{l.config.KeyPrefix + markerName}, l.restMS())
	if err == nil {
		s.quarantined(ms(marked.number(1)))
	}
}

// settleDue reports to the database how long the leases that are due for a look still run.
func (l *Leases) settleDue(ctx context.Context) error {
	for {
		settled, err := l.settleSome(ctx)
		if err != nil || settled < dueMax {
			return err
		}
	}
}

// settleSome looks for some of them. It gives leases back to servers that have lost them.
func (l *Leases) settleSome(ctx context.Context) (settled int, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	asked, err := l.db.LeasesElsewhere(ctx, l.config.Provider, "", dueMax)
	if err != nil || len(asked) == 0 {
		return 0, err
	}
	copies, err := l.copies(ctx, asked)
	if err != nil {
		return 0, fmt.Errorf("report expired leases to PostgreSQL: %w", err)
	}
	seen := make([]store.LeaseStatus, len(asked))
	for i, ref := range asked {
		seen[i] = store.LeaseStatus{LeaseRef: ref, Left: copies[i].left()}
		l.restore(ctx, ref.Lock, copies[i])
	}
	return len(asked), l.db.SettleLeases(ctx, seen)
}

// Look returns the leases on a lock that run, and reports to the database if one has ended. It returns ErrUnavailable.
func (l *Leases) Look(ctx context.Context, lock store.Name) (running []store.LeaseStatus, err error) {
	believed, err := l.db.LeasesElsewhere(ctx, l.config.Provider, lock, lockLeasesMax)
	if err != nil || len(believed) == 0 {
		return nil, err
	}
	lefts, err := l.Left(ctx, believed)
	if err != nil {
		return nil, err
	}
	var ended []store.LeaseStatus
	for i, ref := range believed {
		if lefts[i] <= 0 {
			ended = append(ended, store.LeaseStatus{LeaseRef: ref})
		} else {
			running = append(running, store.LeaseStatus{LeaseRef: ref, Left: lefts[i]})
		}
	}
	if len(ended) == 0 {
		return running, nil
	}
	return running, l.db.SettleLeases(ctx, ended)
}

// Left returns how long leases still run; 0: it has ended. A lease of which that is not known, because servers do not
// answer, counts as running for a millisecond. It returns ErrUnavailable.
func (l *Leases) Left(ctx context.Context, refs []store.LeaseRef) ([]time.Duration, error) {
	copies, err := l.copies(ctx, refs)
	if err != nil {
		return nil, err
	}
	lefts := make([]time.Duration, len(refs))
	for i := range copies {
		lefts[i] = copies[i].left()
	}
	return lefts, nil
}

// lookAt returns what the servers have at the keys of locks. It waits for all of them.
func (l *Leases) lookAt(ctx context.Context, locks []store.Name, timeout time.Duration) ([]answer[[]seen], error) {
	keys := make([]string, len(locks))
	for i, lock := range locks {
		keys[i] = l.keys(lock)[0]
	}
	looked := ask(ctx, &l.running, l.servers, timeout,
		func(ctx context.Context, s *server) ([]seen, error) { return s.look(ctx, keys) }, all)
	if count(looked, func([]seen) bool { return true }) >= l.quorum() {
		return looked, nil
	}
	failed := make([]answer[reply], len(looked))
	for i, a := range looked {
		failed[i] = answer[reply]{server: a.server, err: a.err}
	}
	return nil, l.unavailable(store.OutcomeNotApplied, failed)
}

// copies are the keys of one lease at the servers.
type copies struct {
	times []time.Duration // see left
	text  string          // the value of one of them
	lack  []*server       // what answered and has nothing at the key
}

func (c copies) left() time.Duration {
	t, known := left(c.times)
	if !known {
		return max(t, time.Millisecond)
	}
	return t
}

// copies looks for the keys of leases.
func (l *Leases) copies(ctx context.Context, refs []store.LeaseRef) ([]copies, error) {
	locks := make([]store.Name, len(refs))
	for i, ref := range refs {
		locks[i] = ref.Lock
	}
	looked, err := l.lookAt(ctx, locks, max(l.config.Timeout, lookTimeoutMin))
	if err != nil {
		return nil, err
	}
	found := make([]copies, len(refs))
	for i, ref := range refs {
		for _, a := range looked {
			if a.err != nil {
				found[i].times = append(found[i].times, -1)
				continue
			}
			key, left := a.value[i], time.Duration(0)
			switch {
			case !key.found:
				found[i].lack = append(found[i].lack, a.server)
			case key.value != nil && key.value.LeaseID == ref.ID:
				found[i].text, left = key.text, max(key.remaining(), time.Millisecond)
			}
			found[i].times = append(found[i].times, left)
		}
		for range len(l.servers) - len(looked) {
			found[i].times = append(found[i].times, -1)
		}
	}
	return found, nil
}

// restore gives a running lease back to servers that have lost it, so that a lease outlives the restart of one server
// after the other. A quorum has it, so nobody else has the lock. If it is released at this moment, a minority may keep
// a copy until the TTL is over.
func (l *Leases) restore(ctx context.Context, lock store.Name, c copies) {
	t, _ := left(c.times)
	if v := parse(c.text); t == 0 || v == nil || v.Token == 0 {
		return
	}
	for _, s := range c.lack {
		_ = s.record(s.client.SetNX(ctx, l.keys(lock)[0], c.text, t).Err())
	}
}
