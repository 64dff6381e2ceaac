package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/store/engine"
)

// The kinds of credentials that --auth names.
const (
	authKeys         = "keys"
	authTokens       = "tokens"
	authCertificates = "certificates"
)

// authenticated says whether requests must have a credential.
func (c *serveCmd) authenticated() bool { return len(c.Auth) > 0 }

func (c *serveCmd) accepts(kind string) bool { return slices.Contains(c.Auth, kind) }

// directory reads the access file; nil: neither tokens nor certificates are accepted.
func (c *serveCmd) directory(logger *slog.Logger) (*auth.Directory, error) {
	tokens, certificates := c.accepts(authTokens), c.accepts(authCertificates)
	switch {
	case !tokens && !certificates && c.AccessFile != "":
		return nil, usagef("--access-file is for --auth=%s and --auth=%s", authTokens, authCertificates)
	case !tokens && !certificates:
		return nil, nil
	case c.AccessFile == "":
		return nil, usagef("--auth=%s and --auth=%s need --access-file", authTokens, authCertificates)
	case certificates && c.ClientCA == "":
		return nil, usagef("--auth=%s needs --client-ca", authCertificates)
	}
	directory, err := auth.LoadDirectory(c.AccessFile, logger)
	switch {
	case err != nil:
		return nil, usagef("--access-file: %v", err)
	case tokens && !directory.HasIssuers():
		return nil, usagef("--auth=%s: %s has no issuers", authTokens, c.AccessFile)
	case certificates && !directory.HasCertificates():
		return nil, usagef("--auth=%s: %s has no certificates", authCertificates, c.AccessFile)
	}
	return directory, nil
}

// authenticator accepts the credentials that --auth names; nil: none are asked for.
func (c *serveCmd) authenticator(
	service *engine.Engine, directory *auth.Directory, certificates *gateway.Certificates,
) auth.Authenticator {
	if !c.authenticated() {
		return nil
	}
	var accepted auth.Methods
	if c.accepts(authKeys) {
		accepted.Keys = auth.Keys{Keyring: service.Keyring()}
	}
	if c.accepts(authTokens) {
		accepted.Tokens = auth.Tokens{Directory: directory}
	}
	if c.accepts(authCertificates) {
		accepted.Certificates = auth.Certificates{Directory: directory, Trusts: certificates.Trusts}
	}
	return accepted
}

// signIn returns the issuers by which users sign in; nil: their tokens are not accepted.
func (c *serveCmd) signIn(directory *auth.Directory) *auth.Directory {
	if !c.accepts(authTokens) {
		return nil
	}
	return directory
}

// keysRead reports whether the keys were read; nil: none are accepted.
func (c *serveCmd) keysRead(service *engine.Engine) func() bool {
	if !c.accepts(authKeys) {
		return nil
	}
	return service.Keyring().Ready
}

// followAuth returns what follows the changes of keys and of the access file, as far as they are used.
func (c *serveCmd) followAuth(
	service *engine.Engine, directory *auth.Directory, metrics *metrics.Metrics, logger *slog.Logger,
) (all []func(context.Context)) {
	if c.accepts(authKeys) {
		all = append(all, func(ctx context.Context) {
			service.RunKeyring(ctx, func(err error) { logger.Warn("keys not read or uses not noted yet", "error", err) })
		})
	}
	if directory != nil {
		all = append(all, func(ctx context.Context) { directory.Run(ctx, metrics) })
	}
	return all
}
