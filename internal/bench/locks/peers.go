package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// startedPeer is another lock service, in a process of its own.
type startedPeer struct {
	service service
	version string
	stop    func() error
}

// startPeers runs those that are on this machine, and notes in the report which are not.
func startPeers(ctx context.Context, config Config, report *Report) (services []service, stop func() error, err error) {
	var started []startedPeer
	stop = func() error {
		var errs []error
		for _, peer := range started {
			errs = append(errs, peer.stop())
		}
		return errors.Join(errs...)
	}
	for _, peer := range []struct {
		name  string
		start func(context.Context) (startedPeer, error)
	}{
		{nameEtcd, startEtcd},
		{nameRedis, startRedis(nameRedis)},
		{nameRedisFsync, startRedis(nameRedisFsync, "--appendonly", "yes", "--appendfsync", "always")},
	} {
		running, err := peer.start(ctx)
		switch {
		case errors.Is(err, peers.ErrAbsent):
			report.skip(config, peer.name, err.Error())
			continue
		case err != nil:
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", peer.name, err), stop())
		}
		started = append(started, running)
		services = append(services, running.service)
		report.Peers[peer.name] = running.version
	}
	return services, stop, nil
}
