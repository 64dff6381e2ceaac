// Command container runs a command while PostgreSQL runs in Docker: container COMMAND [ARGUMENT...]. The command finds
// the server by FENCEGATE_DATABASE_URL, and container exits with the command's status. It exits with 1 if no engine
// answers, and says what else will do.
//
// It is a program, and a module, of its own: the tests, which use the server, need not link the library.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	image        = "postgres:15-alpine"
	port         = "5432/tcp"
	user         = "fencegate"
	startTimeout = 5 * time.Minute // the image may have to be pulled
)

//nolint:gosec // the password is an example
const advice = `no PostgreSQL, and no way to get one by itself. Any one of these will do:
  - install its programs (nothing needs to run):
      Debian, Ubuntu   sudo apt-get install postgresql
      Fedora           sudo dnf install postgresql-server
      macOS            brew install postgresql@17, or Postgres.app
  - start Docker, and run this again
  - name a database that you run: FENCEGATE_DATABASE_URL=postgres://user:password@host:5432/database`

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "container:", err)
		status = 1
	}
	os.Exit(status)
}

// run returns the command's status.
func run(command []string) (status int, err error) {
	if len(command) == 0 {
		return 0, errors.New("usage: container COMMAND [ARGUMENT...]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := engineAnswers(ctx); err != nil {
		return 0, fmt.Errorf("%s\n(Docker: %w)", advice, err)
	}
	// A second container, which the library starts, removes this one if this process is killed.
	server, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(map[string]string{"POSTGRES_USER": user, "POSTGRES_PASSWORD": user}),
		testcontainers.WithCmd("postgres", "-c", "max_connections=200", "-c", "track_functions=pl"),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithWaitStrategyAndDeadline(startTimeout,
			// Once while the image prepares the cluster, and once for good.
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2),
			wait.ForListeningPort(port)))
	defer func() { err = errors.Join(err, testcontainers.TerminateContainer(server)) }()
	if err != nil {
		return 0, fmt.Errorf("run %s in Docker: %w", image, err)
	}
	databaseURL, err := urlOf(ctx, server)
	if err != nil {
		return 0, err
	}
	return runWith(databaseURL, command)
}

// engineAnswers returns why no engine can be used, which the library partly reports by a panic.
func engineAnswers(ctx context.Context) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	provider, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return err
	}
	defer provider.Close()
	return provider.Health(ctx)
}

func urlOf(ctx context.Context, server *testcontainers.DockerContainer) (string, error) {
	host, err := server.Host(ctx)
	if err != nil {
		return "", err
	}
	mapped, err := server.MappedPort(ctx, port)
	if err != nil {
		return "", err
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(user, user),
		Host: net.JoinHostPort(host, mapped.Port()), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String(), nil
}

// runWith runs the command. Signals are the command's to answer: the server must outlive it.
func runWith(databaseURL string, command []string) (status int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	child := exec.Command(command[0], command[1:]...) //nolint:gosec // is what this program is for
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), "FENCEGATE_DATABASE_URL="+databaseURL)
	if err := child.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case sent := <-signals:
			if sent != os.Interrupt { // which a terminal sends to both
				_ = child.Process.Signal(sent)
			}
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return max(exit.ExitCode(), 1), nil // -1: by a signal
			}
			return 0, err
		}
	}
}
