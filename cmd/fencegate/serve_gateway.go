package main

import (
	"cmp"
	"log/slog"
	"net"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/callfile"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// historyFlags say what is recorded of the calls of clients.
type historyFlags struct {
	RecordHistory      string `help:"Directory for a file of what clients ask for and are answered, for fencegate-bench check-history. It has no value and no secret." env:"FENCEGATE_RECORD_HISTORY" placeholder:"DIR"`
	RecordHistoryShare int    `help:"On how many of a hundred names calls are recorded, 1 to 100. All gateways record the same names." env:"FENCEGATE_RECORD_HISTORY_SHARE" default:"100"`
	RecordHistoryBytes int64  `help:"Size of the recorded history, at most, at least 1 MiB; then its older half goes." env:"FENCEGATE_RECORD_HISTORY_BYTES" default:"1073741824"`
}

// recorder returns nil where no history is recorded.
func (f historyFlags) recorder() (*callfile.Recorder, error) {
	if f.RecordHistory == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	return callfile.New(callfile.Config{Dir: f.RecordHistory, Share: f.RecordHistoryShare, BytesMax: f.RecordHistoryBytes})
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
		KeepAlive: c.EventKeepAlive, WatchesMax: c.WatchesMax, WaitingMax: c.WaitingMax, PrometheusURL: c.PrometheusURL, Logger: logger, Tracing: tracing,
		Certificates: certificates, AllowedHosts: c.hosts(listening, c.authenticated()),
		TrustedProxies: prefixes(c.TrustedProxies), AccessLogSample: c.AccessLogSample, RefusalDelayMax: c.RefusalDelayMax,
		Auth:   c.authenticator(service, directory, certificates),
		Limits: c.limits(), CallerLeasesMax: c.CallerLeasesMax,
		Terraform: c.Terraform, TerraformLockTTL: c.TerraformLockTTL, TerraformVersionsMax: c.TerraformVersionsMax,
		TerraformStateBytesMax: c.TerraformStateBytesMax, ConnectionsMax: c.ConnectionsMax,
		AddressConnectionsMax: c.AddressConnectionsMax, KeysRead: c.keysRead(service), SignIn: c.signIn(directory),
	}
}
