package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/store/engine"
)

// authenticated says whether requests must have a credential.
func (c *serveCmd) authenticated() bool { return len(c.Auth) > 0 }

// authenticator accepts the credentials that --auth names; nil: none are asked for.
func (c *serveCmd) authenticator(service *engine.Engine) auth.Authenticator {
	if !c.authenticated() {
		return nil
	}
	return auth.Keys{Keyring: service.Keyring()}
}

// keysRead reports whether the keys were read; nil: none are accepted.
func (c *serveCmd) keysRead(service *engine.Engine) func() bool {
	if !slices.Contains(c.Auth, "keys") {
		return nil
	}
	return service.Keyring().Ready
}

// runKeyring follows the changes of keys, if keys are accepted, until ctx ends and the returned function is called.
func (c *serveCmd) runKeyring(ctx context.Context, service *engine.Engine, logger *slog.Logger) (stop func()) {
	if !c.authenticated() {
		return func() {}
	}
	return background(ctx, func(ctx context.Context) {
		service.RunKeyring(ctx, func(err error) { logger.Warn("keys not read or uses not noted yet", "error", err) })
	})
}
