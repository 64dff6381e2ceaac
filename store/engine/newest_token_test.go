package engine_test

import (
	"errors"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestNewestToken checks that a lease is given back whose token is not greater than the client's newest_token, that
// this affects nobody else, and that a lease that the request was granted before is returned if the client may know its
// token.
func TestNewestToken(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	running := enginetest.Run(t, enginetest.OpenStore(t, postgres.Config{DatabaseURL: b.URL}), engine.Config{})
	for name, wait := range map[string]store.AcquireRequest{
		"try":    {Lock: "try", OwnerID: "w", RequestID: "r"},
		"wait":   {Lock: "wait", OwnerID: "w", RequestID: "r", Wait: store.WaitMax},
		"shared": {Lock: "shared", OwnerID: "w", RequestID: "r", Mode: store.Shared},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hostile := wait
			hostile.NewestToken = store.TokenMax
			_, err := running.Acquire(t.Context(), hostile)
			if !errors.Is(err, store.ErrDatabaseWentBack) || enginetest.Unavailable(err, store.OutcomeNotApplied) != nil {
				t.Errorf("an acquire with the greatest newest_token returned %v, want ErrDatabaseWentBack, not applied", err)
			}
			lease, err := running.Acquire(t.Context(), wait)
			if err != nil {
				t.Fatalf("the same acquire without newest_token: %v", err)
			}
			again := wait
			again.NewestToken = lease.Token
			if got, err := running.Acquire(t.Context(), again); err != nil || got.Token != lease.Token {
				t.Errorf("the lease that its request had been granted: got %v (%v), want token %d", got, err, lease.Token)
			}
			again.NewestToken = lease.Token + 1
			_, err = running.Acquire(t.Context(), again)
			if refused := errors.Is(err, store.ErrDatabaseWentBack); refused != (wait.Mode != store.Shared) {
				t.Errorf("that lease, to a client that knows a newer token: %v", err)
			}
			if running.WentBack()[store.SignClient] == 0 {
				t.Error("no sign was counted for a client")
			}
		})
	}
}
