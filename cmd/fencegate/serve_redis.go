package main

import (
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
)

// keepers are what keeps leases outside PostgreSQL.
type keepers []*redislease.Leases

// keepers are those whose servers the flags name. They connect when they are first used.
func (c *serveCmd) keepers(st *store.Store) (all keepers, err error) {
	for _, config := range []redislease.Config{
		{Provider: store.ProviderRedis, URLs: notEmpty(c.RedisURL)},
		{Provider: store.ProviderRedlock, URLs: c.RedlockURLs, TTLMax: c.RedlockTTLMax},
	} {
		if len(config.URLs) == 0 {
			continue
		}
		config.Timeout, config.KeyPrefix = c.RedisTimeout, c.RedisKeyPrefix
		keeper, err := redislease.New(st, config)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, keeper)
	}
	return all, nil
}

func notEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func (k keepers) all() []engine.Keeper {
	all := make([]engine.Keeper, len(k))
	for i, keeper := range k {
		all[i] = keeper
	}
	return all
}

// close ends the connections. Nothing may use the keepers any more.
func (k keepers) close() {
	for _, keeper := range k {
		keeper.Close()
	}
}
