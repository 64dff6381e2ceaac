package redislease

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fencegate/fencegate/store"
)

const (
	timeoutRedis, timeoutRedlock = time.Second, 50 * time.Millisecond
	ttlMaxRedlock                = time.Minute
	ttlMaxMin                    = time.Second
	serversMax                   = 15
)

// Config says where leases are kept, and how. The zero value of a field is its default.
type Config struct {
	// Provider is store.ProviderRedis or store.ProviderRedlock. It has no default.
	Provider store.Provider
	// URLs are those of the servers: one for redis; an odd number from 3 to 15 for redlock. They are in the form of
	// go-redis, redis:// or rediss:// (TLS), with the user and the password:
	//
	//	redis://host:port/db                                      one server
	//	redis://host:port/db?master_name=NAME&addr=host:port      Sentinels, which know the server (redis.ParseFailoverURL)
	//	redis://host:port?addr=host:port                          nodes of a Cluster (redis.ParseClusterURL)
	//
	// The parameter addr may be repeated. A Cluster of which only one node is known repeats that one. For redlock, each
	// URL is one server that does not replicate from another.
	URLs []string
	// TLS, if not nil, is used for rediss:// instead of the system's certificates.
	TLS *tls.Config
	// Timeout bounds one call of one server, connecting included. Default 1 s for redis, 50 ms for redlock; 1 ms to 10 s.
	// A call about a lease with a shorter TTL takes no longer than that.
	Timeout time.Duration
	// DriftPercent is how much faster than others the clock of a server may run. Default 1; at most 50. Less than 0: 0.
	DriftPercent float64
	// TTLMax is the longest TTL of a lease, and for redlock the time for which a server that was started does not vote.
	// Default 24 h for redis, 1 min for redlock; 1 s to 24 h.
	TTLMax time.Duration
	// KeyPrefix stands before the name of a lock in its key. Default "": the keys of redsync and redislock.
	KeyPrefix string
	// PollInterval is the longest time between two tries of the first waiter of a lock; ten times that while the
	// end of the lease is announced to it. Default 500 ms; at least 10 ms.
	PollInterval time.Duration
	// LookInterval is the time between two looks for leases that have expired. Default 10 s; at least 10 ms.
	LookInterval time.Duration
}

func (c Config) withDefaults() (Config, error) {
	timeout, ttlMax := timeoutRedis, store.TTLMax
	if c.Provider == store.ProviderRedlock {
		timeout, ttlMax = timeoutRedlock, ttlMaxRedlock
	}
	c.Timeout, c.TTLMax = cmp.Or(c.Timeout, timeout), cmp.Or(c.TTLMax, ttlMax)
	c.DriftPercent = max(0, cmp.Or(c.DriftPercent, 1))
	c.PollInterval = cmp.Or(c.PollInterval, 500*time.Millisecond)
	c.LookInterval = cmp.Or(c.LookInterval, 10*time.Second)
	invalid := func(format string, args ...any) (Config, error) {
		return c, fmt.Errorf("%w: "+format, append([]any{store.ErrInvalid}, args...)...)
	}
	switch {
	case c.Provider != store.ProviderRedis && c.Provider != store.ProviderRedlock:
		return invalid("the provider is %q, it must be redis or redlock", c.Provider)
	case c.Provider == store.ProviderRedis && len(c.URLs) != 1:
		return invalid("--redis-url has %d URLs, it must have one", len(c.URLs))
	case c.Provider == store.ProviderRedlock && (len(c.URLs) < 3 || len(c.URLs) > serversMax || len(c.URLs)%2 == 0):
		return invalid("--redlock-urls has %d URLs, it must have an odd number of them, 3 to %d", len(c.URLs), serversMax)
	case c.Timeout < time.Millisecond || c.Timeout > 10*time.Second:
		return invalid("--redis-timeout is %s, it must be 1ms to 10s", c.Timeout)
	case c.DriftPercent > 50:
		return invalid("the drift is %g %%, it must be at most 50", c.DriftPercent)
	case c.TTLMax < ttlMaxMin || c.TTLMax > store.TTLMax:
		return invalid("--redlock-ttl-max is %s, it must be %s to %s", c.TTLMax, ttlMaxMin, store.TTLMax)
	case c.PollInterval < 10*time.Millisecond || c.LookInterval < 10*time.Millisecond:
		return invalid("the intervals are %s and %s, they must be at least 10ms", c.PollInterval, c.LookInterval)
	}
	return c, nil
}

// connect returns the servers of the URLs. It sends nothing yet.
func (c Config) connect() ([]*server, error) {
	var servers []*server
	seen := map[string]bool{}
	for i, text := range c.URLs {
		client, address, err := c.client(text)
		if err == nil && seen[address] {
			err = fmt.Errorf("%s is there twice", address)
			_ = client.Close()
		}
		if err != nil {
			closeAll(servers)
			return nil, fmt.Errorf("%w: URL %d of the %s servers: %w", store.ErrInvalid, i+1, c.Provider, err)
		}
		seen[address] = true
		servers = append(servers, newServer(client, address, c.Timeout))
	}
	return servers, nil
}

// client returns a client that retries nothing by itself, and the address to show, which has no password.
func (c Config) client(text string) (redis.UniversalClient, string, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return nil, "", fmt.Errorf("it is no URL") // the error would show the password
	}
	query := parsed.Query()
	switch {
	case c.Provider == store.ProviderRedlock && (query.Has("addr") || query.Has("master_name")):
		return nil, "", fmt.Errorf("redlock needs independent servers, neither Sentinels nor a Cluster")
	case query.Has("master_name"):
		return c.sentinel(text)
	case query.Has("addr"):
		return c.cluster(text)
	}
	options, err := redis.ParseURL(text)
	if err != nil {
		return nil, "", err
	}
	options.DialTimeout, options.DialerRetries = c.Timeout, 1
	options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = c.Timeout, c.Timeout, c.Timeout
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	options.DisableIdentity, options.PipelinePoolSize = true, -1
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.TLSConfig = c.tls(options.TLSConfig)
	return redis.NewClient(options), options.Addr, nil
}

func (c Config) sentinel(text string) (redis.UniversalClient, string, error) {
	options, err := redis.ParseFailoverURL(text)
	if err != nil {
		return nil, "", err
	}
	options.DialTimeout, options.DialerRetries = c.Timeout, 1
	options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = c.Timeout, c.Timeout, c.Timeout
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	options.DisableIdentity, options.PipelinePoolSize = true, -1
	options.TLSConfig = c.tls(options.TLSConfig)
	return redis.NewFailoverClient(options), "sentinel " + options.MasterName, nil
}

func (c Config) cluster(text string) (redis.UniversalClient, string, error) {
	options, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, "", err
	}
	options.DialTimeout, options.DialerRetries = c.Timeout, 1
	options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = c.Timeout, c.Timeout, c.Timeout
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	options.DisableIdentity, options.PipelinePoolSize, options.DisableRoutingPolicies = true, -1, true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.TLSConfig = c.tls(options.TLSConfig)
	return redis.NewClusterClient(options), "cluster " + strings.Join(options.Addrs, ","), nil
}

// tls returns the configuration for a URL, which is nil without TLS.
func (c Config) tls(ofURL *tls.Config) *tls.Config {
	if ofURL == nil || c.TLS == nil {
		return ofURL
	}
	own := c.TLS.Clone()
	own.ServerName = cmp.Or(own.ServerName, ofURL.ServerName)
	return own
}

// drift is how much earlier than after a TTL the fastest of the servers may end a lease. 2 ms are for the precision of
// Redis, as redis.io's description of Redlock has it.
func (c Config) drift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*c.DriftPercent/100) + 2*time.Millisecond
}
