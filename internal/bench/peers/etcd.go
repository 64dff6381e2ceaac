package peers

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is a single node of etcd. Its durability is etcd's own: fsync before every answer.
type Etcd struct {
	Endpoint, Version string

	process *process
}

// StartEtcd runs etcd. It returns ErrAbsent where there is none.
func StartEtcd(ctx context.Context) (*Etcd, error) {
	etcd := &Etcd{}
	command := command{program: "etcd", ports: 2, args: func(dir string, ports []int) []string {
		client, peer := endpoint(ports[0]), endpoint(ports[1])
		return []string{
			"--name", "bench", "--data-dir", dir + "/data", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench=" + peer,
		}
	}, ready: func(ctx context.Context, ports []int) (err error) {
		etcd.Version, err = etcdVersion(ctx, endpoint(ports[0]))
		return err
	}}
	process, ports, err := command.start(ctx)
	if err != nil {
		return nil, err
	}
	etcd.process, etcd.Endpoint = process, endpoint(ports[0])
	return etcd, nil
}

// Stop kills the process.
func (e *Etcd) Stop() error { return e.process.kill() }

// PID is the number of the process.
func (e *Etcd) PID() int { return e.process.pid() }

// Connect makes a client with a connection of its own.
func (e *Etcd) Connect() (*clientv3.Client, error) { return connectEtcd(e.Endpoint) }

func connectEtcd(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: startTimeout, Logger: zap.NewNop()})
}

// etcdVersion answers when the node has a leader: itself.
func etcdVersion(ctx context.Context, endpoint string) (string, error) {
	client, err := connectEtcd(endpoint)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return "", err
	}
	if status.Leader == 0 {
		return "", errors.New("etcd has no leader yet")
	}
	return status.Version, nil
}

func endpoint(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
