//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
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
