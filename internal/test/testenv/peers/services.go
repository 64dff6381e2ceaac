package peers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// StartEtcd runs a single node of etcd, with more flags if there are any. Its durability is etcd's own: fsync before
// every answer. It returns ErrAbsent where there is none.
func StartEtcd(ctx context.Context, flags ...string) (*Peer, error) {
	return command{program: "etcd", addresses: 2, ready: etcdVersion, args: func(dir string, addresses []string) []string {
		client, peer := "http://"+addresses[0], "http://"+addresses[1]
		return append([]string{
			"--name", "bench", "--data-dir", dir + "/data", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench=" + peer,
		}, flags...)
	}}.start(ctx)
}

// etcdVersion answers when the node has a leader: itself.
func etcdVersion(ctx context.Context, address string) (string, error) {
	var health struct{ Health string }
	var version struct{ Etcdserver string }
	for path, answer := range map[string]any{"/health": &health, "/version": &version} {
		if err := get(ctx, "http://"+address+path, answer); err != nil {
			return "", err
		}
	}
	if health.Health != "true" {
		return "", fmt.Errorf("etcd is not ready: health %q", health.Health)
	}
	return version.Etcdserver, nil
}

func get(ctx context.Context, url string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}

// StartRedis runs a Redis server with its own defaults (now and then a snapshot), and settings such as "--appendonly",
// "yes" over them. It returns ErrAbsent where there is none.
func StartRedis(ctx context.Context, settings ...string) (*Peer, error) {
	return command{program: "redis-server", addresses: 1, ready: answers("INFO server\r\n", "redis_version:"),
		args: func(dir string, addresses []string) []string {
			host, port, _ := net.SplitHostPort(addresses[0])
			return append([]string{"--port", port, "--bind", host, "--dir", dir, "--loglevel", "warning"}, settings...)
		}}.start(ctx)
}

// zooKeeperJar is where Debian's package puts it; its manifest names all else that it needs. Another ZooKeeper is named
// by the environment: ZOOKEEPER_CLASSPATH='/opt/zookeeper/lib/*'.
const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeperSessionTimeout is what the server allows of silence, at most.
const ZooKeeperSessionTimeout = 40 * time.Second

// StartZooKeeper runs a single node of ZooKeeper with its own defaults, and settings such as "tickTime=500" over them.
// Its durability is ZooKeeper's own: fsync before every answer. It returns ErrAbsent where there is no java, or neither
// ZOOKEEPER_CLASSPATH nor Debian's package of ZooKeeper.
func StartZooKeeper(ctx context.Context, settings ...string) (*Peer, error) {
	classpath := os.Getenv("ZOOKEEPER_CLASSPATH")
	if _, err := os.Stat(zooKeeperJar); classpath == "" && err != nil {
		return nil, fmt.Errorf("zookeeper (%s): %w", zooKeeperJar, ErrAbsent)
	}
	return command{program: "java", addresses: 1, ready: answers("srvr", "Zookeeper version: "),
		args: func(dir string, _ []string) []string {
			return []string{
				"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=srvr",
				"-Djava.net.preferIPv4Stack=true", "-cp", dir + ":" + cmp.Or(classpath, zooKeeperJar),
				"org.apache.zookeeper.server.ZooKeeperServerMain", filepath.Join(dir, "zoo.cfg"),
			}
		},
		prepare: func(dir, address string) error { return writeZooKeeperConfig(dir, address, settings) },
	}.start(ctx)
}

func writeZooKeeperConfig(dir, address string, settings []string) error {
	host, port, _ := net.SplitHostPort(address)
	config := fmt.Sprintf(
		"dataDir=%s/data\nclientPort=%s\nclientPortAddress=%s\nmaxClientCnxns=0\nmaxSessionTimeout=%d\n",
		dir, port, host, ZooKeeperSessionTimeout.Milliseconds()) + strings.Join(settings, "\n") + "\n"
	logging := "log4j.rootLogger=WARN, console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n"
	if err := os.WriteFile(filepath.Join(dir, "log4j.properties"), []byte(logging), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(config), 0o600)
}

// answers is ready when the peer answers a question with a line that begins with a label: its version is what follows,
// up to a hyphen.
func answers(question, label string) func(context.Context, string) (string, error) {
	return func(ctx context.Context, address string) (string, error) {
		connection, err := (&net.Dialer{Timeout: readyTimeout}).DialContext(ctx, "tcp", address)
		if err != nil {
			return "", err
		}
		defer connection.Close()
		if err := connection.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
			return "", err
		}
		if _, err := connection.Write([]byte(question)); err != nil {
			return "", err
		}
		lines := bufio.NewScanner(connection)
		for lines.Scan() {
			if rest, found := strings.CutPrefix(lines.Text(), label); found {
				version, _, _ := strings.Cut(rest, "-")
				return version, nil
			}
		}
		return "", fmt.Errorf("no line with %q: %w", label, cmp.Or(lines.Err(), net.ErrClosed))
	}
}
