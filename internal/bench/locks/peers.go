package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// startPeers runs those that are on this machine, and notes in the report which are not.
func startPeers(ctx context.Context, config Config, report *Report) (services []service, stop func() error, err error) {
	stop = func() error {
		var errs []error
		for _, service := range services {
			errs = append(errs, service.peer.Stop())
		}
		return errors.Join(errs...)
	}
	for _, peer := range []struct {
		name  string
		start func(ctx context.Context, name string) (service, error)
	}{{nameEtcd, startEtcd}, {nameRedis, startRedis}, {nameRedisFsync, startRedis}} {
		running, err := peer.start(ctx, peer.name)
		switch {
		case errors.Is(err, peers.ErrAbsent):
			report.skip(config, peer.name, err.Error())
			continue
		case err != nil:
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", peer.name, err), stop())
		}
		services = append(services, running)
		report.Peers[peer.name] = running.peer.Version
	}
	return services, stop, nil
}
