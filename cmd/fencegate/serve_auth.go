package main

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/callfile"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/store"
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

// historyFlags say what is recorded of the calls of clients.
type historyFlags struct {
	RecordHistory      string `help:"Directory for a file of what clients ask for and are answered, for fencegate-bench check-history. It has no value and no secret." env:"FENCEGATE_RECORD_HISTORY" placeholder:"DIR"`
	RecordHistoryShare int    `help:"On how many of a hundred names calls are recorded, 1 to 100. All gateways record the same names." env:"FENCEGATE_RECORD_HISTORY_SHARE" default:"100"`
	RecordHistoryBytes int64  `help:"Size of the recorded history, at most, at least 1 MiB; then its older half goes." env:"FENCEGATE_RECORD_HISTORY_BYTES" default:"1073741824"`
}

// recorder returns nil where no history is recorded.
func (f historyFlags) recorder(logger *slog.Logger) (*callfile.Recorder, error) {
	if f.RecordHistory == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	return callfile.New(callfile.Config{Dir: f.RecordHistory, Share: f.RecordHistoryShare, BytesMax: f.RecordHistoryBytes,
		Log: logger})
}

// gatewayConfig is what the flags say about the gateway itself.
func (c *serveCmd) gatewayConfig(
	listening net.Addr, service *engine.Engine, directory *auth.Directory, certificates *gateway.Certificates,
	logger *slog.Logger, tracing store.Tracing,
) gateway.Config {
	return gateway.Config{
		Name:         cmp.Or(c.GatewayName, gatewayName(listening)),
		BodyBytesMax: c.BodyBytesMax, BodiesBytesMax: c.BodiesBytesMax, BodyTimeout: c.BodyTimeout,
		RequestTimeout: c.RequestTimeout, ShutdownTimeout: c.ShutdownTimeout, ReadOnly: c.ReadOnly, DrainDelay: c.DrainDelay,
		KeepAlive: c.EventKeepAlive, WatchesMax: c.WatchesMax, WaitingMax: c.WaitingMax, PrometheusURL: c.PrometheusURL,
		Logger: logger, Tracing: tracing,
		Certificates: certificates, AllowedHosts: c.hosts(listening, c.authenticated()),
		TrustedProxies: prefixes(c.TrustedProxies), AccessLogSample: c.AccessLogSample, RefusalDelayMax: c.RefusalDelayMax,
		Auth:   c.authenticator(service, directory, certificates),
		Limits: c.limits(), CallerLeasesMax: c.CallerLeasesMax,
		Terraform: c.Terraform, TerraformLockTTL: c.TerraformLockTTL, TerraformVersionsMax: c.TerraformVersionsMax,
		TerraformStateBytesMax: c.TerraformStateBytesMax, ConnectionsMax: c.ConnectionsMax,
		AddressConnectionsMax: c.AddressConnectionsMax, KeysRead: c.keysRead(service), SignIn: c.signIn(directory),
	}
}
