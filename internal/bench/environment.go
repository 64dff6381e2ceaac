package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
)

// Environment is what figures depend on beside the code.
type Environment struct {
	At   time.Time `json:"at"`
	CPUs int       `json:"cpus"`
	Go   string    `json:"go"`
	// PostgreSQL are settings of the server's, by name.
	PostgreSQL map[string]string `json:"environment"`
}

var settings = []string{"server_version", "fsync", "synchronous_commit", "shared_buffers", "wal_sync_method"}

// ReadEnvironment asks the database for its settings.
func ReadEnvironment(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (Environment, error) {
	environment := Environment{At: time.Now().UTC(), CPUs: runtime.NumCPU(), Go: runtime.Version(), PostgreSQL: map[string]string{}}
	for _, setting := range settings {
		var value string
		if err := db.QueryRow(ctx, "select current_setting($1)", setting).Scan(&value); err != nil {
			return environment, fmt.Errorf("read the setting %s: %w", setting, err)
		}
		environment.PostgreSQL[setting] = value
	}
	return environment, nil
}

func (e Environment) String() string {
	return fmt.Sprintf("%d CPUs, %s, PostgreSQL %s, fsync %s, synchronous_commit %s",
		e.CPUs, e.Go, e.PostgreSQL["server_version"], e.PostgreSQL["fsync"], e.PostgreSQL["synchronous_commit"])
}
