package demo

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// Worker is one of the two processes of a round: it acquires the lock, works, and writes its result. It does not stop
// when it loses its lease.
type Worker struct {
	Name       string
	GatewayURL string
	Lock       string
	TTL        time.Duration
	// Work is how long it computes between the acquire and the write.
	Work time.Duration
	// Heartbeat renews the lease in the background.
	Heartbeat bool
	// Told makes it work until it can read a line from standard input, instead of for Work.
	Told bool
	// Busy, if set, is a file that replaces Work: it computes in a loop that nothing can interrupt, until the first byte
	// of the file is not zero.
	Busy string
	// Service, if set, grants the lock in place of the gateway, and issues the token. ServiceName names it.
	Service     Service
	ServiceName string
	// DatabaseURL, if set, makes it write to a plain table there, without a fence.
	DatabaseURL string
	// Jobs, if set, makes it claim the jobs of a table there instead of the lock: fenced or unfenced.
	Jobs string
	// GatewayVia and DatabaseVia, if set, are a host and a port to which it connects in place of those in the URLs.
	GatewayVia, DatabaseVia string
	// TLS and Options are for its client of the gateway.
	TLS     *tls.Config
	Options []lockclient.Option
}

const (
	recordKey     = "result"
	retryInterval = 100 * time.Millisecond
)

func (w Worker) value() string { return "the result of " + w.Name }

// Run does the work, and prints Events to out, one a line. A rejected write is an Event, not an error.
func (w Worker) Run(ctx context.Context, out io.Writer) error {
	emit := w.emitter(out)
	if w.Jobs != "" {
		return w.doJobs(ctx, emit)
	}
	client, err := w.client()
	if err != nil {
		return err
	}
	defer client.Close()
	write := w.writeFenced
	if w.DatabaseURL != "" {
		conn, err := w.connect(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		write = func(ctx context.Context, _ *lockclient.Client, token int64) (Event, error) {
			return w.writeUnfenced(ctx, conn, token)
		}
	}

	token, valid, err := w.acquire(ctx, client, emit)
	if err != nil {
		return err
	}
	checked := Event{Event: "checked", Token: token, Text: "checks that its lease is still valid: it is"}
	if w.DatabaseURL != "" && !w.Told {
		emit(checked)
	}
	if err := w.work(emit); err != nil {
		return err
	}
	if w.Told {
		if valid() {
			emit(checked)
		}
		emit(Event{Event: "sent", Token: token, Value: w.value(), Text: fmt.Sprintf("sends %q", w.value())})
	}
	event, err := write(ctx, client, token)
	if err != nil {
		return err
	}
	emit(event)
	return nil
}

// emitter returns the func that prints an Event, and may be called at the same time.
func (w Worker) emitter(out io.Writer) func(Event) {
	var mu sync.Mutex
	events := json.NewEncoder(out)
	return func(event Event) {
		mu.Lock()
		defer mu.Unlock()
		event.Actor, event.At = w.Name, time.Now()
		_ = events.Encode(event)
	}
}

func (w Worker) client() (*lockclient.Client, error) {
	// Retries of heartbeats would interrupt the narration.
	options := append(slices.Clone(w.Options), lockclient.WithLogger(slog.New(slog.DiscardHandler)))
	if w.GatewayVia == "" {
		return lockclient.New(w.GatewayURL, append(options, lockclient.WithTLS(w.TLS))...)
	}
	transport := &http.Transport{DialContext: dialer(w.GatewayVia), TLSClientConfig: w.TLS}
	return lockclient.New(w.GatewayURL, append(options, lockclient.WithHTTPClient(&http.Client{Transport: transport}))...)
}

func (w Worker) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(w.DatabaseURL)
	if err != nil {
		return nil, err
	}
	if w.DatabaseVia != "" {
		config.DialFunc = dialer(w.DatabaseVia)
	}
	return pgx.ConnectConfig(ctx, config)
}

// dialer returns a func that connects to one address, whichever it is asked for.
func dialer(address string) func(ctx context.Context, _, _ string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}

// work computes. It does not notice how long the process was frozen, or its runtime stopped, meanwhile.
func (w Worker) work(emit func(Event)) error {
	switch {
	case w.Busy != "":
		return w.workBusy(emit)
	case w.Told:
		emit(Event{Event: "working", Text: "works on it"})
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	}
	finished := time.After(w.Work)
	emit(Event{Event: "working", Text: "works on it"})
	<-finished
	return nil
}

// acquire returns the fencing token once the lock is granted, and whether the lease is still valid by the clock of this
// process.
func (w Worker) acquire(
	ctx context.Context, client *lockclient.Client, emit func(Event),
) (token int64, valid func() bool, err error) {
	if w.Service != nil {
		token, err = w.acquireFromService(ctx, emit)
		return token, nil, err
	}
	lease, err := w.acquireFromGateway(ctx, client, emit)
	if err != nil {
		return 0, nil, err
	}
	return lease.FencingToken(), lease.Valid, nil
}

// acquireFromGateway tries until the gateway grants the lock.
func (w Worker) acquireFromGateway(
	ctx context.Context, client *lockclient.Client, emit func(Event),
) (*lockclient.Lease, error) {
	options := []lockclient.LeaseOption{lockclient.WithLeaseOwner(w.Name), lockclient.WithTTL(w.TTL)}
	if w.Heartbeat {
		options = append(options, lockclient.OnHeartbeatError(w.heartbeatFailed(emit)))
	} else {
		options = append(options, lockclient.WithoutHeartbeat())
	}
	shown := ""
	for {
		lease, err := client.Acquire(ctx, w.Lock, options...)
		if err == nil {
			expiresAt := lease.Info().ExpiresAt.Time
			emit(Event{
				Event: "granted", Token: lease.FencingToken(), ExpiresAt: &expiresAt,
				Text: fmt.Sprintf("is granted %s with token %d, until %s", w.Lock, lease.FencingToken(), Clock(expiresAt)),
			})
			return lease, nil
		}
		var event Event
		var failure *lockclient.Error
		switch {
		case errors.Is(err, lockclient.ErrLockHeld):
			event = heldEvent(w.Lock, err)
		case errors.Is(err, lockclient.ErrUnavailable) && errors.As(err, &failure) && failure.Cause == nil: // the gateway says so
			event = Event{Event: "unavailable", Code: string(api.CodeUnavailable),
				Text: "tries to acquire " + w.Lock + ": unavailable; tries again"}
		default:
			return nil, err
		}
		if shown != event.Event {
			emit(event)
			shown = event.Event
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// heartbeatFailed returns a func that prints the first heartbeat that fails, and the loss of the lease. A worker whose
// runtime was stopped has written before it learns of the loss.
func (w Worker) heartbeatFailed(emit func(Event)) func(error) {
	failed := false
	return func(err error) {
		switch {
		case w.Busy != "":
		case errors.Is(err, lockclient.ErrLeaseLost):
			emit(Event{Event: "lost", Text: "has lost its lease, and works on all the same"})
		case !failed:
			failed = true
			emit(Event{Event: "heartbeat_failed", Text: "sends a heartbeat, and gets no answer"})
		}
	}
}

func heldEvent(lock string, err error) Event {
	event := Event{Event: "held", Code: string(api.CodeLockHeld), Text: "tries to acquire " + lock + ": it is held"}
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Holder != nil {
		event.ExpiresAt = &problem.Holder.ExpiresAt.Time
		event.Text = fmt.Sprintf("tries to acquire %s: held by %s until %s; waits", lock, problem.Holder.OwnerID,
			Clock(problem.Holder.ExpiresAt.Time))
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

// Clock formats a time for people.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
