package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// faketime is where Debian and others install libfaketime.
const faketime = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// StartWithClock runs a server whose clock can be shifted. Without libfaketime the test is skipped, or fails where CI=true.
func StartWithClock(t testing.TB, settings ...string) *Server {
	t.Helper()
	if found, _ := filepath.Glob(faketime); len(found) == 0 {
		pgtest.Missing(t, "libfaketime was not found: "+faketime)
	}
	s := prepare(t)
	s.clock = filepath.Join(s.dir, "clock")
	s.ShiftClock(0)
	s.start(settings)
	return s
}

// ShiftClock lets the clock of a server of StartWithClock differ by shift from the system's.
func (s *Server) ShiftClock(shift time.Duration) {
	s.t.Helper()
	// The server reads either the old file or the new one.
	err := os.WriteFile(s.clock+".new", fmt.Appendf(nil, "%+.3f\n", shift.Seconds()), 0o600)
	if err == nil {
		err = os.Rename(s.clock+".new", s.clock)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// environment is that of the process.
func (s *Server) environment() []string {
	if s.clock == "" {
		return nil // this process's
	}
	library, _ := filepath.Glob(faketime)
	// With the C library's malloc: that of Redis reads the clock before libfaketime is ready.
	return append(os.Environ(), "LD_PRELOAD="+library[0]+":libc.so.6", "FAKETIME_TIMESTAMP_FILE="+s.clock,
		"FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
}
