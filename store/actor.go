package store

import "context"

// Actor is who does what an administrator may do, for the audit log. The zero value is the role of this process's
// connection to the database.
type Actor struct {
	Principal string
	Address   string // of the client, without its port
}

type actorKey struct{}

// WithActor returns a context for the actions of an actor: PutPolicy, DeletePolicy, SetFence, Break, CreateKey, RotateKey
// and RevokeKey.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}

// args appends the actor to the arguments of a function, as its last two.
func (a Actor) args(of ...any) []any { return append(of, orNull(a.Principal), orNull(a.Address)) }
