package rig

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

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
)

//go:embed preload/slowflush.c
var slowFlush string

// slowPrograms makes a directory with PostgreSQL's programs, which it returns: initdb as it is, and a postgres whose
// every flush takes longer by the delay, as on a disk across a network, or behind a synchronous standby. It needs Linux
// and a C compiler, $CC or cc, and returns peers.ErrAbsent where they are not.
func slowPrograms(ctx context.Context, dir string, delay time.Duration) (string, error) {
	binaries, err := embeddedpg.FindBinaries()
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(dir+binaries.Dir, "'\n") {
		return "", fmt.Errorf("can't name %q and %q in a script", dir, binaries.Dir)
	}
	compiler, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil || runtime.GOOS != "linux" {
		return "", fmt.Errorf("a C compiler (cc) on Linux, to slow flushes down: %w", peers.ErrAbsent)
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // PostgreSQL's user runs what is in it
		return "", err
	}
	library := filepath.Join(dir, "slowflush.so")
	args := []string{"-shared", "-fPIC", "-O2", "-Wall", "-o", library, "-x", "c", "-", "-ldl"}
	cmd := exec.CommandContext(ctx, compiler, args...) //nolint:gosec // $CC is chosen by the user of this program
	cmd.Stdin = strings.NewReader(slowFlush)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile what slows flushes down: %w\n%s", err, output)
	}
	preload := fmt.Sprintf("export LD_PRELOAD='%s' FENCEGATE_FLUSH_DELAY_US=%d\n", library, delay.Microseconds())
	for program, before := range map[string]string{"postgres": preload, "initdb": ""} {
		script := fmt.Sprintf("#!/bin/sh\n%sexec '%s/%s' \"$@\"\n", before, binaries.Dir, program)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755)) //nolint:gosec // see above
	}
	return dir, err
}
