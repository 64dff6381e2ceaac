package tables

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/embeddedpg"
)

// scripts are for pgbench, one a target. Beside :client_id they use
//
//	:prefix, :token  as all resources have them
//	:stride          how many resources are between those of two clients
//	:sequence        what the client numbers its writes from
//
//go:embed pgbench/*.sql
var scripts embed.FS

// pgbench measures the targets that have a script once more, by pgbench's client.
func (r *rig) pgbench(ctx context.Context) error {
	program, err := findPgbench()
	if err != nil {
		r.report.Skipped[Pgbench] = err.Error()
		r.config.progress("skipped: %s: %s", Pgbench, err)
		return nil
	}
	dir, err := os.MkdirTemp("", "fencegate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, scripts); err != nil {
		return err
	}
	for _, clients := range r.config.Clients {
		targets := r.scripted()
		err := r.inTurn(len(targets), func(round, i int) error {
			script := filepath.Join(dir, scriptOf(targets[i]))
			perSecond, err := r.runPgbench(ctx, program, script, clients)
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", targets[i], clients, err)
			}
			r.note(Sample{Case: Case{Measure: Pgbench, Clients: clients}, Target: targets[i], Round: round,
				PerSecond: perSecond, Milliseconds: 1000 / perSecond})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scripted are the targets of the configuration that have a script.
func (r *rig) scripted() (names []string) {
	for _, t := range r.wanted() {
		if _, err := fs.Stat(scripts, scriptOf(t.name)); err == nil {
			names = append(names, t.name)
		}
	}
	return names
}

func scriptOf(target string) string { return path.Join("pgbench", target+".sql") }

// findPgbench returns the program's path: it is beside PostgreSQL's own, or in the PATH. Where there is none it returns
// peers.ErrAbsent.
func findPgbench() (string, error) {
	if binaries, err := embeddedpg.FindBinaries(); err == nil {
		if program, err := exec.LookPath(filepath.Join(binaries.Dir, "pgbench")); err == nil {
			return program, nil
		}
	}
	program, err := exec.LookPath("pgbench")
	if err != nil {
		return "", fmt.Errorf("pgbench: %w", peers.ErrAbsent)
	}
	return program, nil
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)

// runPgbench returns the transactions of a second. One that fails ends it.
func (r *rig) runPgbench(ctx context.Context, program, script string, clients int) (float64, error) {
	length := fmt.Sprintf("--time=%d", max(1, int(math.Ceil(r.config.Duration.Seconds()))))
	if r.config.PgbenchTransactions > 0 {
		length = fmt.Sprintf("--transactions=%d", r.config.PgbenchTransactions)
	}
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--file=" + script, "--client=" + strconv.Itoa(clients),
		"--jobs=" + strconv.Itoa(min(clients, runtime.NumCPU())), length,
	}
	for name, value := range map[string]any{
		"prefix": r.prefix, "token": r.token, "stride": r.stride(clients), "sequence": r.numbers(),
	} {
		args = append(args, fmt.Sprintf("--define=%s=%v", name, value))
	}
	cmd := exec.CommandContext(ctx, program, append(args, r.config.DatabaseURL)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	output, err := cmd.Output()
	found := tps.FindSubmatch(output)
	if err != nil || found == nil {
		return 0, fmt.Errorf("pgbench: %w: %s%s", err, output, &failure)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
