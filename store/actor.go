package store

import (
	"context"
	"fmt"
)

// Actor is who does what an administrator may do, for the audit log. The zero value is the role of this process's
// connection to the database.
type Actor struct {
	Principal string
	Address   string // of the client, without its port
	Scoped    bool   // it administers only some names: how much it may do is bounded (ErrLimit)
}

type actorKey struct{}

// WithActor returns a context for the actions of an actor: PutPolicy, DeletePolicy, SetFence, Break, CreateKey, RotateKey
// and RevokeKey.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor of a context of WithActor.
func ActorOf(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}

// actorArgs appends the actor of a context to the arguments of a function, for actorSQL.
func actorArgs(ctx context.Context, of ...any) []any {
	actor := ActorOf(ctx)
	return append(of, orNull(actor.Principal), orNull(actor.Address), actor.Scoped)
}

// actorSQL is the last two arguments of a function, the actor's principal and address, which are in the parameter first
// and the one after it.
func actorSQL(first int) string {
	return fmt.Sprintf("fence.check_actor($%d, $%d), $%d", first, first+2, first+1)
}
