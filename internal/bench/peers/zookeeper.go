package peers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// zooKeeperJar is where Debian's package puts it; its manifest names all else that it needs. Another ZooKeeper is named
// by the environment: ZOOKEEPER_CLASSPATH='/opt/zookeeper/lib/*'.
const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// sessionTimeout is what the server allows of silence.
const sessionTimeout = 40 * time.Second

// ZooKeeper is a single node of ZooKeeper. Its durability is ZooKeeper's own: fsync before every answer.
type ZooKeeper struct{ *Peer }

// StartZooKeeper runs ZooKeeper with its own defaults, and settings such as "tickTime=500" over them. It returns
// ErrAbsent where there is no java, or neither ZOOKEEPER_CLASSPATH nor Debian's package of ZooKeeper.
func StartZooKeeper(ctx context.Context, settings ...string) (*ZooKeeper, error) {
	classpath := os.Getenv("ZOOKEEPER_CLASSPATH")
	if _, err := os.Stat(zooKeeperJar); classpath == "" && err != nil {
		return nil, fmt.Errorf("zookeeper (%s): %w", zooKeeperJar, ErrAbsent)
	}
	classpath = cmp.Or(classpath, zooKeeperJar)
	args := func(dir string, _ []int) []string {
		return []string{
			"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=srvr", "-Djava.net.preferIPv4Stack=true",
			"-cp", dir + ":" + classpath, "org.apache.zookeeper.server.ZooKeeperServerMain", filepath.Join(dir, "zoo.cfg"),
		}
	}
	server, err := command{
		program: "java", ports: 1, args: args, ready: zooKeeperVersion,
		prepare: func(dir string, ports []int) error { return writeZooKeeperConfig(dir, ports, settings) },
	}.start(ctx)
	return &ZooKeeper{server}, err
}

func writeZooKeeperConfig(dir string, ports []int, settings []string) error {
	config := fmt.Sprintf(
		"dataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nmaxSessionTimeout=%d\n",
		dir, ports[0], sessionTimeout.Milliseconds()) + strings.Join(settings, "\n") + "\n"
	logging := "log4j.rootLogger=WARN, console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n"
	if err := os.WriteFile(filepath.Join(dir, "log4j.properties"), []byte(logging), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(config), 0o600)
}

// Connect makes a client with one connection of its own, and waits until it has a session.
func (z *ZooKeeper) Connect() (*zk.Conn, error) {
	client, events, err := zk.Connect([]string{z.Address}, sessionTimeout, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	timeout := time.After(startTimeout)
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return client, nil
			}
		case <-timeout:
			client.Close()
			return nil, fmt.Errorf("zookeeper at %s gives no session", z.Address)
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// zooKeeperVersion sends ZooKeeper's command srvr, which is answered once the server serves.
func zooKeeperVersion(ctx context.Context, address string) (string, error) {
	connection, err := dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return "", err
	}
	if _, err := connection.Write([]byte("srvr")); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(answer), "Zookeeper version: ")
	version, _, _ := strings.Cut(rest, "-")
	if !found {
		return "", fmt.Errorf("zookeeper is not ready: %q", answer)
	}
	return version, nil
}
