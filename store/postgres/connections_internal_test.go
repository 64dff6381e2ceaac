package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestHostOrder checks which host of a URL is tried first, and that a host keeps its attempts with and without TLS.
func TestHostOrder(t *testing.T) {
	t.Parallel()
	const several = "host=a,b,/socket port=1,2,3 dbname=db sslmode=prefer target_session_attrs="
	const byURL = "a:1 a:1 b:2 b:2 /socket:3"
	for name, c := range map[string]struct {
		url  string
		seen func(*hosts)
		want string
	}{
		"at first": {several + "read-write", func(*hosts) {}, byURL},
		"the last good one": {several + "read-write", func(h *hosts) { h.prefer("10.0.0.2:2") },
			"b:2 b:2 /socket:3 a:1 a:1"},
		"a socket": {several + "primary", func(h *hosts) { h.prefer("/socket/.s.PGSQL.3") }, "/socket:3 a:1 a:1 b:2 b:2"},
		"after one that does not answer": {several + "read-write", func(h *hosts) { h.postpone("10.0.0.1:1") },
			"b:2 b:2 /socket:3 a:1 a:1"},
		"after the last": {several + "read-write", func(h *hosts) { h.postpone("/socket/.s.PGSQL.3") }, byURL},
		"an address that no name has any more": {several + "read-write", func(h *hosts) {
			h.resolve = func(context.Context, string) ([]string, error) { return []string{"10.0.0.9"}, nil }
			_, _ = h.lookup(context.Background(), "b")
			h.prefer("10.0.0.2:2")
		}, byURL},
		"any host will do": {several + "any", func(h *hosts) { h.prefer("10.0.0.2:2") }, byURL},
		"a single host":    {"postgres://a:1/db?sslmode=disable", func(h *hosts) { h.postpone("10.0.0.1:1") }, "a:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := pgx.ParseConfig(c.url)
			if err != nil {
				t.Fatal(err)
			}
			config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
				return map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.0.2"}}[host], nil
			}
			h := newHosts(config)
			for _, host := range []string{"a", "b"} {
				if _, err := config.LookupFunc(t.Context(), host); err != nil {
					t.Fatal(err)
				}
			}
			c.seen(h)
			h.order(config)
			got := fmt.Sprintf("%s:%d", config.Host, config.Port)
			for _, each := range config.Fallbacks {
				got += fmt.Sprintf(" %s:%d", each.Host, each.Port)
			}
			if got != c.want {
				t.Errorf("the order is %s, want %s", got, c.want)
			}
		})
	}
}

// TestConnectTimeout checks the default, which a URL and the environment replace.
func TestConnectTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		query, environment string
		want               time.Duration
	}{
		"default":         {"", "", 3 * time.Second},
		"the URL":         {"?connect_timeout=7", "", 7 * time.Second},
		"the environment": {"", "9", 9 * time.Second},
		"both":            {"?connect_timeout=7", "9", 7 * time.Second},
		"no end":          {"?connect_timeout=0", "", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PGCONNECT_TIMEOUT", c.environment)
			config, err := pgxpool.ParseConfig("postgres://a/db" + c.query)
			if err != nil {
				t.Fatal(err)
			}
			manageConnections(config)
			if got := config.ConnConfig.ConnectTimeout; got != c.want {
				t.Errorf("the timeout is %s, want %s", got, c.want)
			}
		})
	}
}

// TestDropsOfIdleConnections checks that many connections of one age that are found dead drop the idle ones once, and
// that drops for the server's sake keep their interval.
func TestDropsOfIdleConnections(t *testing.T) {
	t.Parallel()
	c := &connections{}
	first, sibling := &connection{}, &connection{}
	next := &connection{generation: 1}
	for _, step := range []struct {
		of       *connection
		interval time.Duration
		want     bool
	}{
		{first, time.Hour, true}, {sibling, time.Hour, false}, {sibling, 0, false}, {next, time.Hour, false}, {next, 0, true},
		{next, 0, false},
	} {
		if got := c.nextGeneration(step.of, step.interval); got != step.want {
			t.Fatalf("a connection of generation %d within %s: %t, want %t", step.of.generation, step.interval, got, step.want)
		}
	}
}
