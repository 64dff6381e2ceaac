package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	dockerImage = "postgres:15-alpine"
	dockerPort  = "5432/tcp"
)

// startDocker starts the shared server in a container. It returns errNone if no engine answers. A second container
// removes it if this process is killed.
func startDocker(ctx context.Context) (*server, error) {
	if err := dockerAnswers(ctx); err != nil {
		return nil, err
	}
	container, err := testcontainers.Run(ctx, dockerImage,
		testcontainers.WithEnv(map[string]string{
			"POSTGRES_USER":     "fencegate",
			"POSTGRES_PASSWORD": "fencegate",
		}),
		testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"),
		testcontainers.WithExposedPorts(dockerPort),
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithWaitStrategyAndDeadline(patience,
			// Once while the image prepares the cluster, and once for good.
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2),
			wait.ForListeningPort(dockerPort)))
	stop := func() error { return testcontainers.TerminateContainer(container) }
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run %s in Docker: %w", dockerImage, err), stop())
	}
	address, err := dockerAddress(ctx, container)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("fencegate", "fencegate"),
		Host: address, Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return &server{url: u.String(), stop: stop}, nil
}

// dockerAnswers returns errNone if no engine can be used, which the library partly reports by a panic.
func dockerAnswers(ctx context.Context) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = noDocker(fmt.Errorf("%v", reason))
		}
	}()
	provider, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return noDocker(err)
	}
	defer provider.Close()
	if err := provider.Health(ctx); err != nil {
		return noDocker(err)
	}
	return nil
}

func noDocker(why error) error { return fmt.Errorf("%w: no Docker engine answers: %w", errNone, why) }

func dockerAddress(ctx context.Context, container *testcontainers.DockerContainer) (string, error) {
	host, err := container.Host(ctx)
	if err != nil {
		return "", err
	}
	port, err := container.MappedPort(ctx, dockerPort)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port.Port()), nil
}
