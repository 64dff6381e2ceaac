//go:build unix

// Package slowflush makes PostgreSQL's flushes as slow as those of another disk: of one across a network, or of one
// behind a synchronous standby.
package slowflush

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

//go:embed preload/slowflush.c
var source []byte

// DelayMax bounds the delay.
const DelayMax = time.Second

// Programs puts PostgreSQL's programs into dir, which must exist and which PostgreSQL's user must be able to enter:
// initdb as it is in binDir, and a postgres whose every flush takes longer by the delay. It needs Linux and a C
// compiler, $CC or cc, and returns peers.ErrAbsent where they are not.
func Programs(ctx context.Context, dir, binDir string, delay time.Duration) error {
	if delay <= 0 || delay > DelayMax {
		return fmt.Errorf("the delay of a flush is %s, it must be 1µs to %s", delay, DelayMax)
	}
	library := filepath.Join(dir, "slowflush.so")
	if err := compile(ctx, library); err != nil {
		return err
	}
	if strings.ContainsAny(dir+binDir, "'\n") {
		return fmt.Errorf("can't name %q and %q in a script", dir, binDir)
	}
	postgres := fmt.Sprintf("#!/bin/sh\nexport LD_PRELOAD='%s' FENCEGATE_FLUSH_DELAY_US=%d\nexec '%s/postgres' \"$@\"\n",
		library, delay.Microseconds(), binDir)
	initdb := fmt.Sprintf("#!/bin/sh\nexec '%s/initdb' \"$@\"\n", binDir)
	return errors.Join(writeProgram(filepath.Join(dir, "postgres"), postgres),
		writeProgram(filepath.Join(dir, "initdb"), initdb))
}

func compile(ctx context.Context, library string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a way to slow flushes down on %s: %w", runtime.GOOS, peers.ErrAbsent)
	}
	compiler, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil {
		return fmt.Errorf("a C compiler (cc), to slow flushes down: %w", peers.ErrAbsent)
	}
	args := []string{"-shared", "-fPIC", "-O2", "-Wall", "-o", library, "-x", "c", "-", "-ldl"}
	cmd := exec.CommandContext(ctx, compiler, args...) //nolint:gosec // $CC is chosen by the user of this program
	cmd.Stdin = strings.NewReader(string(source))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile what slows flushes down: %w\n%s", err, output)
	}
	return os.Chmod(library, 0o755) //nolint:gosec // PostgreSQL's user loads it
}

func writeProgram(path, script string) error {
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil { //nolint:gosec // PostgreSQL's user runs it
		return err
	}
	return os.Chmod(path, 0o755) //nolint:gosec // whatever the umask is
}
