package rig

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Environment is what figures depend on beside the code.
type Environment struct {
	At   time.Time `json:"at"`
	CPUs int       `json:"cpus"`
	Go   string    `json:"go"`
	// CPU and Kernel are what /proc calls them; empty where there is none.
	CPU    string `json:"cpu,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	// FlushMicroseconds is the median time in which a page that was written over is on disk, in the temporary directory,
	// where private servers have their data.
	FlushMicroseconds float64 `json:"flush_us,omitempty"`
	// PostgreSQL are settings of the server's, by name.
	PostgreSQL map[string]string `json:"environment"`
}

var settings = []string{
	"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level", "commit_delay",
	"shared_buffers",
	"max_wal_size", "checkpoint_timeout", "autovacuum", "max_connections",
}

// readEnvironment reads the settings of the database, and measures a flush.
func readEnvironment(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (Environment, error) {
	environment := Environment{
		At: time.Now().UTC(), CPUs: runtime.NumCPU(), Go: runtime.Version(), CPU: cpuModel(), Kernel: kernel(),
		PostgreSQL: map[string]string{},
	}
	for _, setting := range settings {
		var value string
		if err := db.QueryRow(ctx, "select current_setting($1)", setting).Scan(&value); err != nil {
			return environment, fmt.Errorf("read the setting %s: %w", setting, err)
		}
		environment.PostgreSQL[setting] = value
	}
	flush, err := flushTime("")
	if err != nil {
		return environment, fmt.Errorf("see how long a flush takes: %w", err)
	}
	environment.FlushMicroseconds = float64(flush.Nanoseconds()) / 1000
	return environment, nil
}

func (e Environment) String() string {
	text := fmt.Sprintf("%d CPUs, %s, PostgreSQL %s, fsync %s, synchronous_commit %s",
		e.CPUs, e.Go, e.PostgreSQL["server_version"], e.PostgreSQL["fsync"], e.PostgreSQL["synchronous_commit"])
	if e.FlushMicroseconds > 0 {
		text += fmt.Sprintf(", a flush takes %.0f µs", e.FlushMicroseconds)
	}
	return text
}

const (
	flushes    = 200
	flushBytes = 8 << 10 // a page of PostgreSQL's
)

// flushTime writes pages of a file in dir over, as a log does that is used again, each followed by fsync, and returns
// the median time of that.
func flushTime(dir string) (_ time.Duration, err error) {
	file, err := os.CreateTemp(dir, "fencegate-flush-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	page := make([]byte, flushBytes)
	var took []time.Duration
	for i := range 2 * flushes { // once to make the file, once to measure
		before := time.Now()
		if _, err := file.WriteAt(page, int64(i%flushes)*flushBytes); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		if i >= flushes {
			took = append(took, time.Since(before))
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(text), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(line, "\t :"))
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}
