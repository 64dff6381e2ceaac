package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/keyring"
)

// Config says how an Engine works. The zero value of a field is its default.
type Config struct {
	// HeartbeatInterval is the time between two heartbeats, while an acquire waits here. Default 1 s; 10 ms to 1 min.
	HeartbeatInterval time.Duration
	// DeadAfter is the time without a heartbeat after which other gateways skip the waiters of this one. Default 5 s; at
	// least three HeartbeatIntervals.
	DeadAfter time.Duration
	// PollInterval is the time between two looks for waiters and watched locks whose notification was lost. Default 2 s; at least
	// 10 ms.
	PollInterval time.Duration
	// ProbeInterval is the time between two commits that find out whether the database takes them. Default 1 s; at least
	// 10 ms.
	ProbeInterval time.Duration
	// RefusalsRememberedMax is the number of resources whose rejected writes are remembered, to refuse them without the
	// database. Default 100,000, some 20 MiB; at most 10,000,000. Negative: none.
	RefusalsRememberedMax int
	// Leases is the provider of names whose policy names none. Default store.ProviderPostgres; any other must be among
	// Providers.
	Leases store.Provider
	// Providers keep leases outside PostgreSQL, one of each kind at most.
	Providers []LeaseProvider
	// Group bounds the writes that are committed together.
	Group groupcommit.Config
}

func (c Config) withDefaults() (Config, error) {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, time.Second)
	c.DeadAfter = cmp.Or(c.DeadAfter, 5*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, 2*time.Second)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, time.Second)
	c.RefusalsRememberedMax = cmp.Or(c.RefusalsRememberedMax, defaultRefusalsRemembered)
	c.Leases = cmp.Or(c.Leases, store.ProviderPostgres)
	switch {
	case c.HeartbeatInterval < 10*time.Millisecond || c.HeartbeatInterval > time.Minute:
		return c, fmt.Errorf("%w: the heartbeat interval is %s, it must be 10ms to 1m", store.ErrInvalid, c.HeartbeatInterval)
	case c.DeadAfter < 3*c.HeartbeatInterval:
		return c, fmt.Errorf("%w: a gateway is considered dead after %s, it must be at least three heartbeat intervals of %s",
			store.ErrInvalid, c.DeadAfter, c.HeartbeatInterval)
	case c.RefusalsRememberedMax > refusalsRememberedMax:
		return c, fmt.Errorf("%w: --refusals-remembered-max is %d, it must be at most %d",
			store.ErrInvalid, c.RefusalsRememberedMax, refusalsRememberedMax)
	case c.PollInterval < 10*time.Millisecond:
		return c, fmt.Errorf("%w: the poll interval is %s, it must be at least 10ms", store.ErrInvalid, c.PollInterval)
	case c.ProbeInterval < 10*time.Millisecond:
		return c, fmt.Errorf("%w: the probe interval is %s, it must be at least 10ms", store.ErrInvalid, c.ProbeInterval)
	}
	return c, nil
}

// Keyring returns the keys that this Engine accepts. It has none until RunKeyring runs.
func (e *Engine) Keyring() *keyring.Keyring { return e.keyring }

// RunKeyring follows the changes of keys until ctx ends; see keyring.Keyring.Run.
func (e *Engine) RunKeyring(ctx context.Context, onError func(error)) { e.keyring.Run(ctx, onError) }

// CreateKey is postgres.Store.CreateKey. After it has returned, this Engine accepts the key. Other Engines on the database
// accept it when they are notified.
func (e *Engine) CreateKey(ctx context.Context, request store.KeyRequest) (store.Key, error) {
	key, err := e.Store.CreateKey(ctx, request)
	e.keysChanged(ctx)
	return key, err
}

// RotateKey is postgres.Store.RotateKey; see CreateKey.
func (e *Engine) RotateKey(
	ctx context.Context, id string, request store.KeyRequest, overlap time.Duration,
) (store.Key, error) {
	key, err := e.Store.RotateKey(ctx, id, request, overlap)
	e.keysChanged(ctx)
	return key, err
}

// RevokeKey is postgres.Store.RevokeKey. After it has returned, this Engine refuses the key. Other Engines on the database
// refuse it when they are notified, or after keyring.PollInterval.
func (e *Engine) RevokeKey(ctx context.Context, id string) (store.Key, error) {
	key, err := e.Store.RevokeKey(ctx, id)
	e.keysChanged(ctx)
	return key, err
}

// keysChanged reads the keys, also after an error: the change may have been made.
func (e *Engine) keysChanged(ctx context.Context) {
	if e.keyring.Reload(ctx) != nil {
		e.keyring.Wake()
	}
}
