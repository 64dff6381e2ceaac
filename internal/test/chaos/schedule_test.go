//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// step is one fault, and perhaps another one beside it.
type step struct {
	fault string
	// beside is a fault of the network that lasts as long as this one; "" is none.
	beside string
	// target selects a gateway or a connection, where the fault concerns one of several.
	target int
	// hold is how long the fault lasts, at least.
	hold time.Duration
}

func (s step) String() string {
	text := fmt.Sprintf("%s, target %d, for %s", s.fault, s.target, s.hold)
	if s.beside != "" {
		text += ", beside " + s.beside
	}
	return text
}

// epoch is a load, and the faults that it meets.
type epoch struct {
	// loses says that its faults lose commits by design: replication is asynchronous.
	loses bool
	// remembers says that clients send the newest token that they know with each acquire.
	remembers bool
	steps     []step
}

// breaksDatabases says that a database crashes in the epoch.
func (e epoch) breaksDatabases() bool {
	return slices.ContainsFunc(e.steps, func(s step) bool {
		return strings.Contains(s.fault, "primary-") || strings.Contains(s.fault, "standby-") || faultNamed(s.fault).loses
	})
}

// schedule draws epochs from a seed.
type schedule struct{ random *rand.Rand }

func newSchedule(seed uint64) *schedule {
	return &schedule{rand.New(rand.NewPCG(seed, 0))}
}

const (
	stepsMax = 8
	holdMin  = 100 * time.Millisecond
	holdMax  = 2 * time.Second
)

// next returns the next epoch. One in four loses commits.
func (s *schedule) next() epoch {
	e, faults := epoch{loses: s.random.IntN(4) == 0}, lossless
	if e.loses {
		faults = local
	}
	for range 3 + s.random.IntN(stepsMax-2) {
		e.steps = append(e.steps, s.step(pick(s.random, faults)))
	}
	if e.loses {
		at := s.random.IntN(len(e.steps))
		e.steps[at] = s.step(pick(s.random, losing))
		e.remembers = e.steps[at].fault == forgotten
	}
	return e
}

func (s *schedule) step(f fault) step {
	drawn := step{
		fault: f.name, target: s.random.IntN(1 << 16), hold: holdMin + time.Duration(s.random.Int64N(int64(holdMax-holdMin))),
	}
	if beside := pick(s.random, networks); !f.alone && s.random.IntN(3) == 0 {
		drawn.beside = beside.name
	}
	return drawn
}

func pick(random *rand.Rand, faults []fault) fault { return faults[random.IntN(len(faults))] }

// TestSchedule checks that a seed always gives the same epochs, and that each fault is drawn, where it may be.
func TestSchedule(t *testing.T) {
	t.Parallel()
	a, b, other := newSchedule(7), newSchedule(7), newSchedule(8)
	drawn := map[string]bool{}
	differs := false
	for range 300 {
		e := a.next()
		if !reflect.DeepEqual(e, b.next()) {
			t.Fatal("one seed gave two schedules")
		}
		differs = differs || !reflect.DeepEqual(e, other.next())
		for _, s := range e.steps {
			f := faultNamed(s.fault)
			drawn[s.fault] = true
			if f.loses && !e.loses {
				t.Errorf("%v is in an epoch that must not lose commits", s)
			}
			if f.alone && s.beside != "" {
				t.Errorf("%v has another fault beside it", s)
			}
			if e.loses && slices.ContainsFunc(failover, func(other fault) bool { return other.name == s.fault }) {
				t.Errorf("%v expects that commits wait for a standby, and they do not", s)
			}
			if s.hold < holdMin || s.hold > holdMax {
				t.Errorf("%v lasts too long, or not at all", s)
			}
		}
	}
	if !differs {
		t.Error("two seeds gave one schedule")
	}
	for _, f := range slices.Concat(lossless, losing) {
		if !drawn[f.name] {
			t.Errorf("%s was never drawn", f.name)
		}
	}
}

// standbyPromoted kills the primary and promotes the standby, which has all that was acknowledged.
func standbyPromoted(w *world, s step) func() {
	w.primary.Kill()
	hold(s)
	w.promote()
	w.renew()
	return nil
}

// promotedUnsynchronized is promotedBehind, where gateways find synchronous_commit = off and have to raise it.
func promotedUnsynchronized(w *world, s step) func() {
	w.reload(w.primary, "synchronous_commit", "off")
	signalBackends("pg_terminate_backend")(w, step{hold: s.hold / 2})
	w.progress(acksEachStep)
	return promotedBehind("")(w, s)
}

// promotedBehind promotes a standby that was down while clients wrote to the primary. What is committed there waits for
// the standby. function ends some of these waits: the commit then looks like any other, but for a warning.
func promotedBehind(function string) func(*world, step) func() {
	return func(w *world, s step) func() {
		w.standby.Kill()
		w.awaitCommitWaits()
		if function != "" {
			conn := connect(w.t, w.primary)
			execute(w.t, conn, "select "+function+"(pid) from pg_stat_activity where wait_event = 'SyncRep'")
			_ = conn.Close(context.Background())
		}
		hold(s) // clients send again what was not answered in time
		w.primary.Kill()
		w.standby.Restart()
		w.promote()
		w.renew()
		return nil
	}
}

// awaitCommitWaits returns when commits of gateways wait for the standby; or when they do not, as they should.
func (w *world) awaitCommitWaits() {
	w.t.Helper()
	conn := connect(w.t, w.primary)
	defer func() { _ = conn.Close(context.Background()) }()
	before, _ := w.journal.Progress(ofTheLoad...)
	await.True(w.t, "commits wait for the standby", func() (waiting bool) {
		check(w.t, conn.QueryRow(await.Context(w.t), `select exists (select from pg_stat_activity
			where application_name = 'fencegate' and wait_event = 'SyncRep')`).Scan(&waiting))
		now, sound := w.journal.Progress(ofTheLoad...)
		return waiting || now > before+acksEachStep || !sound
	})
}

// frozenPrimaryReplaced promotes the standby while the primary is frozen. The old primary returns for a while. It has
// no standby, so it acknowledges nothing.
func frozenPrimaryReplaced(w *world, s step) func() {
	old := w.primary
	thaw := old.Freeze()
	w.promote()
	third := w.primary.Standby(settings()...) // the old primary keeps its host for now
	w.standby = third
	w.progress(acksEachStep)
	thaw()
	hold(s)
	old.Discard()
	w.hosts[1].PointAt(third.Socket())
	return nil
}

// commitsLost promotes a standby that lacks the last commits.
func commitsLost(w *world, s step) func() {
	from := w.journal.Now()
	w.standby.CatchUp()
	w.standby.Stop()
	w.progress(acksEachStep)
	hold(s)
	w.primary.Kill()
	w.standby.Restart()
	w.promote()
	w.awaitServed()
	w.journal.Lost(from)
	w.renew()
	return nil
}

// oldPrimaryReturned promotes the standby while the primary is frozen. When all gateways use the new primary, the old
// one returns, and then the new one is away: no gateway may go back.
func oldPrimaryReturned(w *world, s step) func() {
	from := w.journal.Now()
	w.standby.CatchUp()
	thaw := w.primary.Freeze()
	w.promote()
	w.awaitServed()
	w.journal.Lost(from)
	w.progress(acksEachStep)
	thaw()
	w.progress(acksEachStep)
	w.primary.Kill()
	hold(s)
	w.primary.Restart()
	w.progress(acksEachStep)
	w.renew()
	return nil
}

// backupRestored starts a base backup without recovery: it has the identity of the lost primary, and lacks all that was
// committed since.
func backupRestored(w *world, s step) func() {
	from := w.journal.Now()
	backup := w.primary.Backup(settings()...)
	w.progress(acksEachStep)
	hold(s)
	w.standby.Discard()
	w.primary.Discard()
	backup.Restart()
	w.primary = backup
	w.hosts[0].PointAt(backup.Socket())
	w.awaitServed()
	w.journal.Lost(from)
	w.standby = w.primary.Standby(settings()...)
	w.hosts[1].PointAt(w.standby.Socket())
	return nil
}

// tokensForgotten puts the tokens of the load's names back as no failover and no restore does, while no gateway runs
// that could remember them. Grants are refused then, until an operator accepts the database.
func tokensForgotten(w *world, _ step) func() {
	for _, m := range w.members {
		m.gateway.Kill()
	}
	conn := connect(w.t, w.primary)
	defer func() { _ = conn.Close(context.Background()) }()
	await.True(w.t, "no statement of a killed gateway is under way", func() (none bool) {
		check(w.t, conn.QueryRow(await.Context(w.t), `select count(pg_terminate_backend(pid, 10000)) = 0
			from pg_stat_activity where starts_with(application_name, 'fencegate') and backend_type = 'client backend'`).Scan(&none))
		return none
	})
	var newest int64
	check(w.t, conn.QueryRow(await.Context(w.t), "select last_value from fence.tokens").Scan(&newest))
	for _, sql := range []string{
		"delete from fence.records where starts_with(resource, 'chaos/')",
		"delete from fence.leases where starts_with(lock, 'chaos/')",
		"delete from fence.fences where starts_with(resource, 'chaos/')",
		"select setval('fence.tokens', 1)",
	} {
		execute(w.t, conn, sql)
	}
	w.journal.Lost(0) // before a gateway can answer
	for _, m := range w.members {
		w.restart(m, w.program)
	}
	w.awaitRefusedGrants()
	execute(w.t, conn, "select fence.accept_database($1)", newest)
	return nil
}

// awaitRefusedGrants returns when a gateway has found out that a client knows a newer token; or when writes continue,
// as they should not.
func (w *world) awaitRefusedGrants() {
	w.t.Helper()
	before, _ := w.journal.Progress(ofTheLoad...)
	await.True(w.t, "grants are refused", func() bool {
		now, _ := w.journal.Progress(ofTheLoad...)
		return now > before || slices.ContainsFunc(w.members, func(m *member) bool {
			return strings.Contains(m.gateway.Log(), "sign=client")
		})
	})
}

// promote makes the standby the primary. It acknowledges nothing before it has a standby of its own, unless replication
// is asynchronous.
func (w *world) promote() {
	w.t.Helper()
	w.standby.Promote()
	w.primary, w.standby = w.standby, w.primary
	w.hosts[0], w.hosts[1] = w.hosts[1], w.hosts[0]
}

// renew replaces the standby, which was the primary before, by a copy of the primary.
func (w *world) renew() {
	w.t.Helper()
	w.standby.Discard()
	w.standby = w.primary.Standby(settings()...)
	w.hosts[1].PointAt(w.standby.Socket())
}
