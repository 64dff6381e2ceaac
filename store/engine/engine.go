package engine

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/keyring"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/readiness"
	"github.com/fencegate/fencegate/store/waitqueue"
	"github.com/fencegate/fencegate/store/watch"
)

// Engine is a Store with what that alone has not: acquires that wait, leases in Redis, writes that are committed together,
// states of watched locks, and changes of what it remembers of the database. It keeps one connection on which the database
// notifies it. Any number of Engines may work on one database.
type Engine struct {
	*postgres.Store

	tracer    trace.Tracer // nil: nothing is traced
	id        uuid.UUID
	group     *groupcommit.Group
	refusals  *Refusals
	queue     *waitqueue.Queue
	watches   *watch.Broadcast
	listener  *listener
	providers *providers
	prober    *readiness.Prober
	keyring   *keyring.Keyring
}

// New returns an Engine on a Store. It waits to be Run; before that it works, only slower. It returns ErrInvalid if
// the configuration is outside its limits.
func New(on *postgres.Store, config Config) (*Engine, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	group, err := groupcommit.New(on, config.Group)
	if err != nil {
		return nil, err
	}
	providers, err := newProviders(on, config.Providers, config.Leases)
	if err != nil {
		return nil, err
	}
	id := uuid.New()
	e := &Engine{
		Store:     on,
		providers: providers,
		tracer:    on.Tracing().Tracer(),
		id:        id,
		group:     group,
		refusals:  newRefusals(max(config.RefusalsRememberedMax, 0)),
		queue: waitqueue.New(on, id, waitqueue.Config{
			HeartbeatInterval: config.HeartbeatInterval, DeadAfter: config.DeadAfter, PollInterval: config.PollInterval,
		}),
		watches: watch.New(on, config.PollInterval),
		prober:  readiness.New(on, config.ProbeInterval),
		keyring: keyring.New(on),
	}
	e.listener = newListener(on, e.queue.Channel(), store.ChangesChannel, store.PoliciesChannel,
		store.KeysChannel)
	e.listener.onConnect = e.connected
	e.listener.onLost = e.refusals.invalidate
	e.listener.onNotify = e.notified
	return e, nil
}

// Run listens, serves the waiters, and reads watched locks, until ctx ends. Then it takes no more
// writes by Commit and Submit, and waits for those that were sent. It passes errors to onError, and tries again.
func (e *Engine) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	running.Go(func() { e.listener.run(ctx, onError) })
	running.Go(func() { e.queue.Run(ctx, onError) })
	running.Go(func() { e.watches.Run(ctx, onError) })
	for _, provider := range e.providers.others {
		running.Go(func() { provider.Run(ctx, onError) })
	}
	running.Wait()
	e.group.Close()
}

// RunProber finds out whether the database takes commits, until ctx ends; see readiness.Prober.Run.
func (e *Engine) RunProber(ctx context.Context, onChange func(*readiness.NotReadyError)) {
	e.prober.Run(ctx, onChange)
}

// Ready returns a readiness.NotReadyError if the database takes no commits, as of the last probe. It waits for the
// first one until ctx ends.
func (e *Engine) Ready(ctx context.Context) error { return e.prober.Ready(ctx) }

// NotReady returns why the database takes no commits, as of the last probe, or nil.
func (e *Engine) NotReady() *readiness.NotReadyError { return e.prober.NotReady() }

// CutOff cancels the writes in flight, whose outcome then is unknown, so that Run returns soon after its ctx has ended.
func (e *Engine) CutOff() { e.group.CutOff() }

// Watch subscribes to the states of a lock; see watch.Broadcast.Subscribe.
func (e *Engine) Watch(ctx context.Context, lock store.Name) (*watch.Subscription, error) {
	return e.watches.Subscribe(ctx, lock)
}

// Listening reports whether the connection for notifications is up. Without it, waiters are polled.
func (e *Engine) Listening() bool { return e.listener.connected.Load() }

// Reconnects returns how often the connection for notifications was made again after it was lost.
func (e *Engine) Reconnects() uint64 { return max(e.listener.connects.Load(), 1) - 1 }

// GatewayID returns the ID by which the database knows this process.
func (e *Engine) GatewayID() uuid.UUID { return e.id }

// Waiting returns how many acquires wait in this process.
func (e *Engine) Waiting() int {
	waiting := e.queue.Len()
	for _, provider := range e.providers.others {
		waiting += provider.Waiting()
	}
	return waiting
}

// Waiters returns the acquires that wait in this process.
func (e *Engine) Waiters() *waitqueue.Queue { return e.queue }

// GroupStats returns the state of the group commit now.
func (e *Engine) GroupStats() groupcommit.Stats { return e.group.Stats() }

// Refusals returns the memory of rejected writes.
func (e *Engine) Refusals() *Refusals { return e.refusals }

// NamesMoved says that names of a cluster move from this database to another one. Waiters send their acquires again, and
// watches end: both get ErrElsewhere where their lock has moved.
func (e *Engine) NamesMoved() {
	e.queue.RequeueAll()
	e.watches.EndAll(store.ErrElsewhere)
}

func (e *Engine) connected() {
	e.providers.forget()
	e.refusals.validate()
	e.queue.RequeueAll()
	e.watches.FetchAll()
	e.keyring.Wake()
}

// notified handles a notification. A change of policies or keys has no payload.
func (e *Engine) notified(channel, payload string) {
	switch channel {
	case store.ChangesChannel:
		e.watches.Fetch(payload)
	case store.PoliciesChannel:
		e.policiesChanged()
	case store.KeysChannel:
		e.keyring.Wake()
	default:
		e.queue.Notified(payload)
	}
}

// policiesChanged forgets the conclusions from former policies and fences.
func (e *Engine) policiesChanged() {
	e.providers.forget()
	e.refusals.forget()
}
