package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// LeaseProvider keeps leases outside PostgreSQL; *redislease.Leases is one. Its methods return what those of postgres.Store
// return, and ErrProviderUnavailable.
type LeaseProvider interface {
	// Provider returns where the leases are kept.
	Provider() store.Provider
	// Run looks for leases that have ended, until ctx ends. It passes errors to onError, and tries again.
	Run(ctx context.Context, onError func(error))
	Acquire(context.Context, store.AcquireRequest) (store.Lease, error)
	// GiveBack ends a lease that its owner was not told of.
	GiveBack(context.Context, store.Lease) error
	Renew(context.Context, store.LeaseRef, time.Duration) (store.Lease, error)
	ReleaseLease(context.Context, store.LeaseRef) (store.Released, error)
	// Forget frees a lock whose lease with that token was broken; 0: there was none.
	Forget(context.Context, store.Name, int64) error
	// Waiting returns how many acquires wait in this process.
	Waiting() int
	// Look returns the leases on a lock that run, and lets PostgreSQL know of those that have ended.
	Look(context.Context, store.Name) ([]store.LeaseStatus, error)
}

// providers finds the provider of each name: by the policy of its longest prefix, or else the default. It remembers the
// policies until they change. A decision by policies of a moment ago is safe: PostgreSQL grants no lease beside one
// that another provider keeps.
type providers struct {
	store    *postgres.Store
	others   map[store.Provider]LeaseProvider // than PostgreSQL
	fallback store.Provider

	routes     atomic.Pointer[map[string]store.Provider] // by prefix; nil: not read yet
	generation atomic.Uint64                             // raised before the routes are forgotten
	reading    sync.Mutex
}

func newProviders(on *postgres.Store, others []LeaseProvider, fallback store.Provider) (*providers, error) {
	p := &providers{store: on, others: map[store.Provider]LeaseProvider{}, fallback: fallback}
	for _, provider := range others {
		p.others[provider.Provider()] = provider
	}
	if _, err := p.other(fallback); err != nil {
		return nil, fmt.Errorf("%w: --leases is %s: %w", store.ErrInvalid, fallback, err)
	}
	return p, nil
}

// of returns the provider of the leases on a name; nil: PostgreSQL.
func (p *providers) of(ctx context.Context, name store.Name) (LeaseProvider, error) {
	routes := p.routes.Load()
	if routes == nil {
		var err error
		if routes, err = p.read(ctx); err != nil {
			return nil, err
		}
	}
	return p.other(route(*routes, string(name), p.fallback))
}

// other returns the provider with that name; nil: PostgreSQL. It returns ErrUnsupported if this gateway has none.
func (p *providers) other(name store.Provider) (LeaseProvider, error) {
	provider, ok := p.others[name]
	if !ok && name != store.ProviderPostgres {
		flag := map[store.Provider]string{store.ProviderRedis: "--redis-url", store.ProviderRedlock: "--redlock-urls"}[name]
		return nil, fmt.Errorf("%w: they are kept in %s, and this gateway was started without %s",
			store.ErrUnsupported, name, flag)
	}
	return provider, nil
}

// route returns the provider of the longest prefix of the name that has a policy.
func route(routes map[string]store.Provider, name string, fallback store.Provider) store.Provider {
	for prefix := name; len(routes) > 0; prefix = prefix[:max(0, strings.LastIndexByte(prefix, '/'))] {
		if provider, ok := routes[prefix]; ok {
			if provider == "" {
				return fallback
			}
			return provider
		}
		if prefix == "" {
			break
		}
	}
	return fallback
}

func (p *providers) read(ctx context.Context) (*map[string]store.Provider, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if routes := p.routes.Load(); routes != nil {
		return routes, nil
	}
	generation := p.generation.Load()
	policies, err := p.store.Policies(ctx)
	if err != nil {
		return nil, err
	}
	routes := make(map[string]store.Provider, len(policies))
	for _, policy := range policies {
		routes[policy.Prefix] = policy.Leases
	}
	if slices.IndexFunc(policies, func(policy store.Policy) bool { return policy.Leases != "" }) < 0 {
		clear(routes) // all names have the default
	}
	p.routes.Store(&routes)
	if p.generation.Load() != generation {
		p.routes.Store(nil)
	}
	return &routes, nil
}

// forget makes the next use read the policies again.
func (p *providers) forget() {
	p.generation.Add(1)
	p.routes.Store(nil)
}

// Acquire takes a lock, and stores the lease. It waits for it as long as the request says; see waitqueue.Queue.Acquire.
// The policy of the name says which provider keeps the lease. If that is not PostgreSQL, Acquire also returns
// ErrUnsupported.
//
// A lease whose token is not greater than request.NewestToken is given back: ErrDatabaseWentBack. The client may know
// that token because the same request was granted it before, or a lease beside it to share; then the lease is returned.
//
// It takes pointers, because copies of requests and leases on the stack of a caller that waits were most of what a
// waiter cost.
func (e *Engine) Acquire(ctx context.Context, request *store.AcquireRequest, lease *store.Lease) error {
	provider, err := e.providers.of(ctx, request.Lock)
	if err != nil {
		return err
	}
	if provider == nil && request.Wait > 0 {
		err = e.queue.Acquire(ctx, request, lease)
	} else {
		err = e.acquireBy(ctx, provider, request, lease)
	}
	if err == nil && lease.Token <= request.NewestToken && !e.mayBeKnown(ctx, lease, request.NewestToken) {
		err = e.refuseGrant(ctx, provider, lease, request.NewestToken)
	}
	return err
}

// acquireBy has the copies of a call in a frame of its own. The provider is nil for PostgreSQL.
//
//go:noinline
func (e *Engine) acquireBy(
	ctx context.Context, provider LeaseProvider, request *store.AcquireRequest, lease *store.Lease,
) (err error) {
	if provider == nil {
		*lease, err = e.Store.Acquire(ctx, *request)
	} else {
		*lease, err = provider.Acquire(ctx, *request)
	}
	return err
}

// refuseGrant gives back a lease whose token is not greater than one that the client knows of. A lease that was waited
// for, and that its request found again, counts as taken by its client (fence.give_back): it is released.
func (e *Engine) refuseGrant(
	ctx context.Context, provider LeaseProvider, lease *store.Lease, newestToken int64,
) error {
	old := *lease
	*lease = store.Lease{}
	end := e.queue.GiveBack
	switch {
	case old.Replayed && old.Waited > 0:
		end = func(ctx context.Context, lease store.Lease) error { return e.Release(ctx, lease.Ref()) }
	case provider != nil:
		end = provider.GiveBack
	}
	if err := end(context.WithoutCancel(ctx), old); err != nil {
		return err
	}
	return e.Store.RefuseGrant(ctx, old, newestToken)
}

// mayBeKnown reports whether the newest token that a client knows may be that of a lease that its request was granted
// before, or of a shared lease beside that one. The database has the lease beside it, unless it went back: then it lacks
// that lease even after its tokens have risen above it again. A newer token than that of a live exclusive lease is of
// another database, also where the first answer was lost.
func (e *Engine) mayBeKnown(ctx context.Context, lease *store.Lease, newestToken int64) bool {
	if !lease.Replayed || lease.Mode != store.Shared || lease.Token == newestToken {
		return lease.Replayed && lease.Token == newestToken
	}
	beside, err := e.Store.Leases(ctx, store.LeaseQuery{Lock: lease.Lock, AfterToken: newestToken, Limit: 1})
	return err == nil && len(beside) > 0 && beside[0].Token == newestToken
}

// Renew makes a live lease last longer; see postgres.Store.Renew.
func (e *Engine) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	provider, err := e.providers.other(store.ProviderOf(ref.ID))
	switch {
	case err != nil:
		return store.Lease{}, err
	case provider != nil:
		return provider.Renew(ctx, ref, ttl)
	}
	return e.Store.Renew(ctx, ref, ttl)
}

// ReleaseLease ends a lease and closes the fence behind it; see postgres.Store.ReleaseLease.
func (e *Engine) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	provider, err := e.providers.other(store.ProviderOf(ref.ID))
	switch {
	case err != nil:
		return store.Released{}, err
	case provider != nil:
		return provider.ReleaseLease(ctx, ref)
	}
	return e.queue.ReleaseLease(ctx, ref)
}

// Release is ReleaseLease without its result.
func (e *Engine) Release(ctx context.Context, ref store.LeaseRef) error {
	_, err := e.ReleaseLease(ctx, ref)
	return err
}

// Break ends whatever lease there is on a lock; see postgres.Store.Break.
func (e *Engine) Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error) {
	lease, err := e.Store.Break(ctx, lock, reason)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return lease, err
	}
	// The policy may have changed since the grant. Without a lease, another program may have locked the key.
	ofLease, _ := e.providers.other(lease.Provider)
	ofName, _ := e.providers.of(ctx, lock)
	for _, provider := range slices.Compact([]LeaseProvider{ofLease, ofName}) {
		if provider == nil {
			continue
		}
		if failed := provider.Forget(ctx, lock, lease.Token); failed != nil {
			return lease, failed
		}
	}
	return lease, err
}

// Lock returns a lock as it is now; see postgres.Store.Lock.
func (e *Engine) Lock(ctx context.Context, name store.Name) (store.Lock, error) {
	running, err := e.look(ctx, name)
	if err != nil {
		return store.Lock{}, err
	}
	lock, err := e.Store.Lock(ctx, name)
	showEnds(lock, running)
	return lock, err
}

// LockAndFence returns a lock and the fence of its name; see postgres.Store.LockAndFence.
func (e *Engine) LockAndFence(ctx context.Context, name store.Name) (store.Lock, *store.Fence, error) {
	running, err := e.look(ctx, name)
	if err != nil {
		return store.Lock{}, nil, err
	}
	lock, fence, err := e.Store.LockAndFence(ctx, name)
	showEnds(lock, running)
	return lock, fence, err
}

// look asks the provider of a name for its leases. If the provider does not answer, it returns none, and the lock shows
// what PostgreSQL lists.
func (e *Engine) look(ctx context.Context, name store.Name) (running []store.LeaseStatus, err error) {
	provider, err := e.providers.of(ctx, name)
	if provider == nil || err != nil {
		return nil, nil //nolint:nilerr // whoever reads a lock need not know what keeps it
	}
	running, err = provider.Look(ctx, name)
	if errors.Is(err, store.ErrProviderUnavailable) {
		return nil, nil
	}
	return running, err
}

// showEnds updates each holder's ExpiresAt with the time that its provider reported. PostgreSQL may list it for longer.
func showEnds(lock store.Lock, running []store.LeaseStatus) {
	for _, lease := range running {
		for i := range lock.Holders {
			if lock.Holders[i].Token == lease.Token && lease.Left > time.Millisecond {
				lock.Holders[i].ExpiresAt = time.Now().Add(lease.Left).Truncate(time.Millisecond)
			}
		}
	}
}
