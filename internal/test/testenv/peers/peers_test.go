package peers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// skipIfAbsent skips a test whose peer is not here; on CI, where scripts/test-deps installs it, the test fails.
func skipIfAbsent(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrAbsent) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each that is here is started, says its version, leaves the ports to a second start, and leaves nothing behind.
func TestPeers(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (*Peer, error){
		"etcd":  func(*testing.T) (*Peer, error) { return StartEtcd(t.Context()) },
		"redis": func(*testing.T) (*Peer, error) { return StartRedis(t.Context(), "--appendonly", "yes") },
		"zookeeper": func(t *testing.T) (*Peer, error) {
			peer, err := StartZooKeeper(t.Context())
			if errors.Is(err, ErrAbsent) {
				t.Skip(err) // on CI, too: scripts/test-deps does not install it, as it brings Java
			}
			return peer, err
		},
		"pgbouncer": func(*testing.T) (*Peer, error) {
			return StartPgBouncer(t.Context(), "postgres://nobody@127.0.0.1:1/none") // connects when a client does
		},
	} {
		t.Run(name, func(t *testing.T) {
			peer, err := start(t)
			skipIfAbsent(t, err)
			if peer.Version == "" {
				t.Error("it has no version")
			}
			peer.Kill()
			if err := peer.Start(t.Context()); err != nil {
				t.Error(err)
			}
			leavesNothing(t, peer)
		})
	}
}

func leavesNothing(t *testing.T, p *Peer) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the process still runs: %v", err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", p.dir, err)
	}
}

func TestAnAbsentPeerIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, errEtcd := StartEtcd(t.Context())
	_, errRedis := StartRedis(t.Context())
	for name, err := range map[string]error{"etcd": errEtcd, "redis-server": errRedis} {
		if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorsHaveThePeersOutput(t *testing.T) {
	_, err := exec.LookPath("redis-server")
	if err != nil {
		skipIfAbsent(t, errors.Join(err, ErrAbsent))
	}
	_, err = StartRedis(t.Context(), "--appendfsync", "sometimes")
	if err == nil || !strings.Contains(err.Error(), "appendfsync") {
		t.Errorf("got %v", err)
	}
}

func TestAnEndedContextEndsTheStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	c := command{program: "sleep", addresses: 1, args: func(string, []string) []string { return []string{"600"} },
		ready: func(context.Context, string) (string, error) { return "", redis.Nil }}
	if p, err := c.start(ctx); !errors.Is(err, redis.Nil) || p != nil {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestSettingsOfTheEnvironmentAreDropped(t *testing.T) {
	got := withoutSettings([]string{"PATH=/bin", "ETCD_DATA_DIR=/x", "ETCDCTL_API=3"}, "etcd")
	if want := []string{"PATH=/bin", "ETCDCTL_API=3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
