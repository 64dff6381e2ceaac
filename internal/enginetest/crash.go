package enginetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// NewCrashing is a testbed on a cluster that may be killed.
func NewCrashing(t *testing.T, options ...pgtest.Option) (*DB, *pgtest.Cluster) {
	t.Helper()
	cluster := pgtest.NewCluster(t, options...)
	sql, err := pgxpool.New(t.Context(), cluster.URL())
	check(t, err)
	t.Cleanup(sql.Close)
	b := &DB{OpenStore(t, store.Config{DatabaseURL: cluster.URL()}), cluster.URL(), sql}
	check(t, b.Migrate(await.Context(t)))
	return b, cluster
}

// Insist sends again what the database was not there for.
func Insist(what func() error) (err error) {
	for deadline := time.Now().Add(await.Limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = what(); !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return err
}

// Unavailable checks that an error is ErrUnavailable, with the outcome that is known of the call.
func Unavailable(err error, outcome store.Outcome) error {
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, store.ErrUnavailable) || unavailable.Outcome != outcome {
		return fmt.Errorf("the answer is %w, want ErrUnavailable with outcome %s", err, outcome)
	}
	return nil
}
