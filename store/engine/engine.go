package engine

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/waitqueue"
	"github.com/fencegate/fencegate/store/watch"
)

// Config says how a Engine waits. The zero value of a field is its default.
type Config struct {
	// Beat is how often the database is told that this process lives, while somebody waits in it. Default 1 s; 10 ms to 1 min.
	Beat time.Duration
	// Missing is how long the waiters of a process that is not heard of still count; after that they hold nobody up. Default 5 s; at
	// least three Beats.
	Missing time.Duration
	// Poll is how often the lines are looked at without any notification, for those that were lost. Default 2 s; at least 10 ms.
	Poll time.Duration
	// RefusalsRememberedMax is of how many resources the Engine remembers who is shut out, to refuse them without the database.
	// Default 100,000, some 20 MiB; at most 10,000,000. Negative: of none.
	RefusalsRememberedMax int
	// Group bounds the writes that are committed together.
	Group groupcommit.Config
}

func (c Config) withDefaults() (Config, error) {
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.Missing = cmp.Or(c.Missing, 5*time.Second)
	c.Poll = cmp.Or(c.Poll, 2*time.Second)
	c.RefusalsRememberedMax = cmp.Or(c.RefusalsRememberedMax, defaultRefusalsRemembered)
	switch {
	case c.Beat < 10*time.Millisecond || c.Beat > time.Minute:
		return c, fmt.Errorf("%w: the beat is %s, it must be 10ms to 1m", store.ErrInvalid, c.Beat)
	case c.Missing < 3*c.Beat:
		return c, fmt.Errorf("%w: a process is missed after %s, which must be at least three beats of %s", store.ErrInvalid, c.Missing, c.Beat)
	case c.RefusalsRememberedMax > refusalsRememberedMax:
		return c, fmt.Errorf("%w: refusals of %d resources are to be remembered (--refusals-remembered-max), it must be at most %d",
			store.ErrInvalid, c.RefusalsRememberedMax, refusalsRememberedMax)
	case c.Poll < 10*time.Millisecond:
		return c, fmt.Errorf("%w: the poll is every %s, it must be at least 10ms", store.ErrInvalid, c.Poll)
	}
	return c, nil
}

// Engine is a Store whose acquires may wait, and whose locks can be watched. It keeps one connection on which the database notifies
// it. Any number of Engines may work on one database.
type Engine struct {
	*store.Store
	tracer   trace.Tracer // nil: nothing is traced
	group    *groupcommit.Group
	refusals *Refusals
	id       uuid.UUID
	queue    *waitqueue.Queue
	watches  *watch.Broadcast
	listener *listener
}

// NewEngine returns a Engine over store that waits to be Run, or ErrInvalid if the configuration is outside its limits. Before that it
// waits as well, only slower.
func New(on *store.Store, config Config) (*Engine, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	group, err := groupcommit.New(on, config.Group)
	if err != nil {
		return nil, err
	}
	gateway := uuid.New()
	listening := on.ConnConfig()
	listening.RuntimeParams["application_name"] = "fencegate listener"
	channel := "fence_" + strings.ReplaceAll(gateway.String(), "-", "") // as fence.gateway_channel makes it
	service := &Engine{
		Store:    on,
		tracer:   on.Config().Tracing.Tracer(),
		id:       gateway,
		group:    group,
		refusals: newRefusals(max(config.RefusalsRememberedMax, 0)),
		queue:    waitqueue.New(on, gateway, waitqueue.Config{Beat: config.Beat, Missing: config.Missing, Poll: config.Poll}),
		watches:  watch.New(on, config.Poll),
		listener: &listener{store: on, config: listening, channels: []string{channel, store.EventsChannel, store.PoliciesChannel}},
	}
	service.listener.onConnect = service.connected
	service.listener.onLost = service.refusals.distrust
	service.listener.onNotify = service.notified
	return service, nil
}

// Run listens, keeps the places of those who wait, and follows the events of what is watched, until ctx ends. Then it takes no more writes
// by Commit and Submit, and waits for those that were sent. It tells onError of what failed and is tried again.
func (s *Engine) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	running.Go(func() { s.listener.run(ctx, onError) })
	running.Go(func() { s.queue.Run(ctx, onError) })
	running.Go(func() { s.watches.Run(ctx, onError) })
	running.Wait()
	s.group.Close()
}

// Listening reports whether the connection for notifications stands. Without it waiters are served by polling.
func (s *Engine) Listening() bool { return s.listener.connected.Load() }

// Reconnects returns how often the connection for notifications was made anew, after it was lost.
func (s *Engine) Reconnects() uint64 { return max(s.listener.connects.Load(), 1) - 1 }

// GatewayID is by which the database knows this process.
func (s *Engine) GatewayID() uuid.UUID { return s.id }

// Waiting returns how many acquires wait in this process.
func (s *Engine) Waiting() int { return s.queue.Len() }

// GroupStats returns the state of the group commit now.
func (s *Engine) GroupStats() groupcommit.Stats { return s.group.Stats() }

func (s *Engine) connected() {
	s.refusals.trust()
	s.queue.AskAgain()
	s.watches.FetchAll()
}

// notified takes a notification: fence.wake sends "ms lock", fence.publish_event the lock, a change of policies nothing.
func (s *Engine) notified(channel, payload string) {
	switch channel {
	case store.EventsChannel:
		s.watches.Fetch(store.Name(payload))
		return
	case store.PoliciesChannel:
		s.refusals.forget()
		return
	}
	text, lock, _ := strings.Cut(payload, " ")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return
	}
	s.queue.Wake(store.Name(lock), time.Duration(ms)*time.Millisecond)
}

// Acquire takes a lock, and waits for it as long as the request says; see waitqueue.Queue.Acquire.
func (s *Engine) Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	return s.queue.Acquire(ctx, request)
}

// Watch begins a watch of a lock; see watch.Broadcast.Watch.
func (s *Engine) Watch(ctx context.Context, lock store.Name, after *int64) (*watch.Subscription, error) {
	return s.watches.Watch(ctx, lock, after)
}

// Refusals returns what this process remembers of rejected writes.
func (s *Engine) Refusals() *Refusals { return s.refusals }

// Waiters returns the acquires that wait in this process.
func (s *Engine) Waiters() *waitqueue.Queue { return s.queue }
