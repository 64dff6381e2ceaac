package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// Worker is one of the two processes of a round: it acquires the lock, works, and writes its result.
type Worker struct {
	Name       string
	GatewayURL string
	Lock       string
	TTL        time.Duration
	// Work is how long it computes between the acquire and the write.
	Work time.Duration
	// Service, if set, grants the lock in place of the gateway, and issues the token. ServiceName names it.
	Service     Service
	ServiceName string
	// DatabaseURL, if set, makes it write to a plain table there, without a fence.
	DatabaseURL string
}

const (
	recordKey     = "result"
	retryInterval = 100 * time.Millisecond
)

func (w Worker) value() string { return "the result of " + w.Name }

// Run does the work, and prints Events to out, one a line. A rejected write is an Event, not an error.
func (w Worker) Run(ctx context.Context, out io.Writer) error {
	events := json.NewEncoder(out)
	emit := func(event Event) {
		event.Actor, event.At = w.Name, time.Now()
		_ = events.Encode(event)
	}
	client, err := lockclient.New(w.GatewayURL)
	if err != nil {
		return err
	}
	write := w.writeFenced
	if w.DatabaseURL != "" {
		conn, err := pgx.Connect(ctx, w.DatabaseURL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		write = func(ctx context.Context, _ *lockclient.Client, token int64) (Event, error) {
			return w.writeUnfenced(ctx, conn, token)
		}
	}

	token, err := w.acquire(ctx, client, emit)
	if err != nil {
		return err
	}
	if w.DatabaseURL != "" {
		emit(Event{Event: "checked", Token: token, Text: "checks that its lease is still valid: it is"})
	}
	emit(Event{Event: "working", Text: "works on it"})
	time.Sleep(w.Work) // the computation; a frozen process does not notice how long it was frozen

	event, err := write(ctx, client, token)
	if err != nil {
		return err
	}
	emit(event)
	return nil
}

// acquire returns the fencing token once the lock is granted.
func (w Worker) acquire(ctx context.Context, client *lockclient.Client, emit func(Event)) (token int64, err error) {
	if w.Service != nil {
		return w.acquireFromService(ctx, emit)
	}
	return w.acquireFromGateway(ctx, client, emit)
}

// acquireFromGateway tries until the gateway grants the lock.
func (w Worker) acquireFromGateway(
	ctx context.Context, client *lockclient.Client, emit func(Event),
) (token int64, err error) {
	request := api.AcquireRequest{OwnerID: w.Name, TTLMS: new(w.TTL.Milliseconds())}
	shown := false
	for {
		lease, err := client.API().Acquire(ctx, w.Lock, request)
		if err == nil {
			emit(Event{
				Event: "granted", Token: lease.FencingToken, ExpiresAt: &lease.ExpiresAt.Time,
				Text: fmt.Sprintf("is granted %s with token %d, until %s", w.Lock, lease.FencingToken, clock(lease.ExpiresAt.Time)),
			})
			return lease.FencingToken, nil
		}
		if !errors.Is(err, lockclient.ErrLockHeld) {
			return 0, err
		}
		if !shown {
			emit(heldEvent(w.Lock, err))
			shown = true
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func heldEvent(lock string, err error) Event {
	event := Event{Event: "held", Code: string(api.CodeLockHeld), Text: "tries to acquire " + lock + ": it is held"}
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Holder != nil {
		event.ExpiresAt = &problem.Holder.ExpiresAt.Time
		event.Text = fmt.Sprintf("tries to acquire %s: held by %s until %s; waits", lock, problem.Holder.OwnerID,
			clock(problem.Holder.ExpiresAt.Time))
	}
	return event
}

// writeFenced sends the write with its token, and returns the answer as an Event.
func (w Worker) writeFenced(ctx context.Context, client *lockclient.Client, number int64) (Event, error) {
	token := api.FencingToken{Token: number, Sequence: new(int64(1))}
	_, err := client.API().Put(ctx, w.Lock, recordKey,
		lockclient.Write{Token: token, ContentType: "text/plain", Value: []byte(w.value())})
	var problem *api.Problem
	switch {
	case err == nil:
		return Event{
			Event: "written", Token: number, Value: w.value(),
			Text: fmt.Sprintf("writes %q with token %s: accepted", w.value(), token),
		}, nil
	case errors.Is(err, lockclient.ErrTokenStale) && errors.As(err, &problem) && problem.GrantedToken != nil && problem.LastToken != nil:
		newest := max(*problem.GrantedToken, *problem.LastToken)
		return Event{
			Event: "rejected", Token: number, Code: string(problem.Code), GrantedToken: newest,
			Value: w.value(),
			Text: fmt.Sprintf("writes %q with token %s: REJECTED, %s: its token is %d, the newest is %d",
				w.value(), token, problem.Code, number, newest),
		}, nil
	}
	return Event{}, err
}

// writeUnfenced writes to a plain table, as most programs do: after it acquired the lock and looked at the lease.
func (w Worker) writeUnfenced(ctx context.Context, conn *pgx.Conn, token int64) (Event, error) {
	_, err := conn.Exec(ctx, `
		insert into `+unfencedTable+` (resource, value) values ($1, $2)
		on conflict (resource) do update set value = excluded.value`, w.Lock, w.value())
	if err != nil {
		return Event{}, err
	}
	return Event{
		Event: "written", Token: token, Value: w.value(),
		Text: fmt.Sprintf("writes %q to a plain table: accepted, nothing looks at the token", w.value()),
	}, nil
}

// clock formats a time for people.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
