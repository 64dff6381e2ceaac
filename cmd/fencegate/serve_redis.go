package main

import (
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
)

// redisProviders keep leases outside PostgreSQL.
type redisProviders []*redislease.Leases

// redisProviders returns the providers whose servers the flags name. They connect when they are first used.
func (c *serveCmd) redisProviders(st *store.Store) (all redisProviders, err error) {
	for _, config := range []redislease.Config{
		{Provider: store.ProviderRedis, URLs: notEmpty(c.RedisURL)},
		{Provider: store.ProviderRedlock, URLs: c.RedlockURLs, TTLMax: c.RedlockTTLMax},
	} {
		if len(config.URLs) == 0 {
			continue
		}
		config.Timeout, config.KeyPrefix = c.RedisTimeout, c.RedisKeyPrefix
		provider, err := redislease.New(st, config)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, provider)
	}
	return all, nil
}

func notEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func (p redisProviders) all() []engine.LeaseProvider {
	all := make([]engine.LeaseProvider, len(p))
	for i, provider := range p {
		all[i] = provider
	}
	return all
}

// close ends the connections. Nothing may use the providers any more.
func (p redisProviders) close() {
	for _, provider := range p {
		provider.Close()
	}
}
