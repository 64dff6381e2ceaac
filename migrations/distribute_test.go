package migrations_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// TestDistributionNeedsCitus checks that a database without Citus stays as it is. make test-citus tests the others.
func TestDistributionNeedsCitus(t *testing.T) {
	t.Parallel()
	conn := connect(t, postgres.Migrated(t))
	err := migrations.Distribution{With: "accounts", Connect: func(context.Context, string) (*pgx.Conn, error) {
		t.Error("a node was looked for")
		return nil, errors.ErrUnsupported
	}}.Apply(t.Context(), conn)
	if !errors.Is(err, migrations.ErrNoCluster) || !strings.Contains(err.Error(), "no extension citus") {
		t.Errorf("a database without Citus was distributed: %v", err)
	}
	var changed bool
	if err := conn.QueryRow(t.Context(), "select exists (select from fence.cluster) or to_regnamespace('fencegate') is not null").
		Scan(&changed); err != nil || changed {
		t.Errorf("it was changed: %v, %v", changed, err)
	}
}
