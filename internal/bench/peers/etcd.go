package peers

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is a single node of etcd. Its durability is etcd's own: fsync before every answer.
type Etcd struct{ *Peer }

// StartEtcd runs etcd. It returns ErrAbsent where there is none.
func StartEtcd(ctx context.Context) (*Etcd, error) {
	etcd, err := command{program: "etcd", ports: 2, args: func(dir string, ports []int) []string {
		client, peer := "http://"+address(ports[0]), "http://"+address(ports[1])
		return []string{
			"--name", "bench", "--data-dir", dir + "/data", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench=" + peer,
		}
	}, ready: etcdVersion}.start(ctx)
	return &Etcd{etcd}, err
}

// Connect makes a client with a connection of its own.
func (e *Etcd) Connect() (*clientv3.Client, error) { return connectEtcd(e.Address) }

func connectEtcd(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: startTimeout, Logger: zap.NewNop()})
}

// etcdVersion answers when the node has a leader: itself.
func etcdVersion(ctx context.Context, address string) (string, error) {
	client, err := connectEtcd(address)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	status, err := client.Status(ctx, address)
	if err != nil {
		return "", err
	}
	if status.Leader == 0 {
		return "", errors.New("etcd has no leader yet")
	}
	return status.Version, nil
}
