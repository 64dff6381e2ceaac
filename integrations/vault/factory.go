package vault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	log "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/lockclient"
)

var _ physical.Factory = NewBackend

// NewBackend makes a backend of the settings in Vault's configuration:
//
//   - address: the URLs of the gateways, with commas between them; required
//   - resource: see [Options]; default "vault"
//   - token_file, or token: the API key, where the gateways want one
//   - ha_enabled: default "true"
//   - lock_ttl: default "15s"
//
// Settings of other names are Vault's own, and ignored.
func NewBackend(config map[string]string, logger log.Logger) (physical.Backend, error) {
	urls := strings.Split(strings.ReplaceAll(config["address"], " ", ""), ",")
	if urls[0] == "" {
		return nil, errors.New("storage fencegate: address is required: the URL of a gateway")
	}
	options := Options{Resource: config["resource"]}
	if text := config["ha_enabled"]; text != "" {
		enabled, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("storage fencegate: ha_enabled must be true or false, it is %q", text)
		}
		options.WithoutHA = !enabled
	}
	if text := config["lock_ttl"]; text != "" {
		ttl, err := time.ParseDuration(text)
		if err != nil || ttl < time.Second {
			return nil, fmt.Errorf("storage fencegate: lock_ttl must be a duration of at least 1s, it is %q", text)
		}
		options.LockTTL = ttl
	}
	opts := []lockclient.Option{lockclient.WithFailover(urls[1:]...), lockclient.WithUserAgent("fencegate-vault")}
	if path := config["token_file"]; path != "" {
		opts = append(opts, lockclient.WithTokenFile(path))
	}
	if token := config["token"]; token != "" {
		opts = append(opts, lockclient.WithToken(token))
	}
	client, err := lockclient.New(urls[0], opts...)
	if err != nil {
		return nil, fmt.Errorf("storage fencegate: %w", err)
	}
	logger.Info("storage in fencegate", "gateways", len(urls))
	return New(client, options), nil
}
