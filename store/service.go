package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// ServiceConfig says how a Service waits. The zero value of a field is its default.
type ServiceConfig struct {
	// Beat is how often the database is told that this process lives, while somebody waits in it. Default 1 s; 10 ms to 1 min.
	Beat time.Duration
	// Missing is how long the waiters of a process that is not heard of still count; after that they hold nobody up. Default 5 s; at
	// least three Beats.
	Missing time.Duration
	// Poll is how often the lines are looked at without any notification, for those that were lost. Default 2 s; at least 10 ms.
	Poll time.Duration
	// RefusalsRememberedMax is of how many resources the Service remembers who is shut out, to refuse them without the database.
	// Default 100,000, some 20 MiB; at most 10,000,000. Negative: of none.
	RefusalsRememberedMax int
	// Group bounds the writes that are committed together.
	Group GroupConfig
}

func (c ServiceConfig) withDefaults() (ServiceConfig, error) {
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.Missing = cmp.Or(c.Missing, 5*time.Second)
	c.Poll = cmp.Or(c.Poll, 2*time.Second)
	c.RefusalsRememberedMax = cmp.Or(c.RefusalsRememberedMax, defaultRefusalsRemembered)
	switch {
	case c.Beat < 10*time.Millisecond || c.Beat > time.Minute:
		return c, fmt.Errorf("%w: the beat is %s, it must be 10ms to 1m", ErrInvalid, c.Beat)
	case c.Missing < 3*c.Beat:
		return c, fmt.Errorf("%w: a process is missed after %s, which must be at least three beats of %s", ErrInvalid, c.Missing, c.Beat)
	case c.RefusalsRememberedMax > refusalsRememberedMax:
		return c, fmt.Errorf("%w: refusals of %d resources are to be remembered (--refusals-remembered-max), it must be at most %d",
			ErrInvalid, c.RefusalsRememberedMax, refusalsRememberedMax)
	case c.Poll < 10*time.Millisecond:
		return c, fmt.Errorf("%w: the poll is every %s, it must be at least 10ms", ErrInvalid, c.Poll)
	}
	return c, nil
}

// Service is a Store whose acquires may wait, and whose locks can be watched. It keeps one connection on which the database notifies
// it. Any number of Services may work on one database.
type Service struct {
	*Store
	group    *Group
	refusals *refusals
	id       uuid.UUID
	line     *line
	watches  *watches
	listener *listener
}

// NewService returns a Service over store that waits to be Run, or ErrInvalid if the configuration is outside its limits. Before that it
// waits as well, only slower.
func NewService(store *Store, config ServiceConfig) (*Service, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	group, err := NewGroup(store, config.Group)
	if err != nil {
		return nil, err
	}
	gateway := uuid.New()
	listening := store.pool.Config().ConnConfig // a copy
	listening.RuntimeParams["application_name"] = "fencegate listener"
	channel := "fence_" + strings.ReplaceAll(gateway.String(), "-", "") // as fence.gateway_channel makes it
	service := &Service{
		Store:    store,
		id:       gateway,
		group:    group,
		refusals: newRefusals(max(config.RefusalsRememberedMax, 0)),
		line:     newLine(store, gateway, config),
		watches:  newWatches(store, config),
		listener: &listener{config: listening, channels: []string{channel, eventsChannel, policiesChannel}},
	}
	service.listener.onConnect = service.connected
	service.listener.onLost = service.refusals.distrust
	service.listener.onNotify = service.notified
	return service, nil
}

// Run listens, keeps the places of those who wait, and follows the events of what is watched, until ctx ends. Then it takes no more writes
// by Commit and Submit, and waits for those that were sent. It tells onError of what failed and is tried again.
func (s *Service) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	running.Go(func() { s.listener.run(ctx, onError) })
	running.Go(func() { s.line.run(ctx, onError) })
	running.Go(func() { s.watches.run(ctx, onError) })
	running.Wait()
	s.group.Close()
}

// Listening reports whether the connection for notifications stands. Without it waiters are served by polling.
func (s *Service) Listening() bool { return s.listener.connected.Load() }

// Reconnects returns how often the connection for notifications was made anew, after it was lost.
func (s *Service) Reconnects() uint64 { return max(s.listener.connects.Load(), 1) - 1 }

// GatewayID is by which the database knows this process.
func (s *Service) GatewayID() uuid.UUID { return s.id }

// Waiting returns how many acquires wait in this process.
func (s *Service) Waiting() int { return s.line.len() }

// GroupStats returns the state of the group commit now.
func (s *Service) GroupStats() GroupStats { return s.group.Stats() }

func (s *Service) connected() {
	s.refusals.trust()
	s.line.askAgain()
	s.watches.fetchAll()
}

// notified takes a notification: fence.wake sends "ms lock", fence.publish_event the lock, a change of policies nothing.
func (s *Service) notified(channel, payload string) {
	switch channel {
	case eventsChannel:
		s.watches.fetch(Name(payload))
		return
	case policiesChannel:
		s.refusals.forget()
		return
	}
	text, lock, _ := strings.Cut(payload, " ")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return
	}
	s.line.wake(Name(lock), time.Duration(ms)*time.Millisecond)
}
