package engine

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/keyring"
)

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
