//go:build unix

package chaos

import (
	"reflect"
	"slices"
	"testing"
)

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
			if f.loses && (!e.loses || s.beside != "") {
				t.Errorf("%v is in an epoch that must not lose commits, or has another fault beside it", s)
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
