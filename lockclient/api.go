package lockclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// API is the HTTP API of locks, records and sessions, one method per path: it sends requests as they are, and
// retries only at the next gateway. Programs use the methods of [Client] and [Lease]; API is for tools. The package
// admin has the lists, policies, keys and the audit log. API is safe for concurrent use.
//
// With several gateways (WithFailover) a call continues at the next one, each gateway once and within ctx, if that
// can't apply it twice: if it can't have been sent, if the answer says that it was not applied, or if its outcome is
// unknown and it may be sent again. The latter are reads, renewals and keepalives, releases and session
// ends, numbered writes, and acquires with a RequestID. An error matches [ErrOutcomeUnknown] if one of
// the attempts may have been applied.
type API struct {
	client *Client
	// limit, if positive, replaces the client's answer timeout, for the last gateway, too.
	limit time.Duration
}

// limited returns the same calls with a limit for each attempt, beyond the time that it asks to wait for a lock.
func (a *API) limited(limit time.Duration) *API { return &API{client: a.client, limit: limit} }

// send asks the gateways in turn, until one answers; call.check has read the answer then. It returns *Error for every
// refusal and every network failure, or *AnswerError.
func (a *API) send(ctx context.Context, call request) error {
	if call.err != nil {
		return call.err
	}
	gateways := a.client.gateways
	first := a.client.preferred.Load()
	var doubt, failed error
	for i := range gateways {
		index := (int(first) + i) % len(gateways)
		last := i == len(gateways)-1
		err := a.attempt(ctx, call, gateways[index], last)
		if err == nil || !notServed(err) {
			a.client.prefer(first, index)
			return remember(err, doubt)
		}
		if errors.Is(err, ErrOutcomeUnknown) {
			doubt = remember(err, doubt)
		}
		if failed == nil || retryable(err) {
			failed = err
		}
		if last || ctx.Err() != nil || (errors.Is(err, ErrOutcomeUnknown) && !call.idempotent && call.repeat != "") {
			// A call that the caller canceled says nothing against the gateway.
			if !errors.Is(ctx.Err(), context.Canceled) {
				a.client.prefer(first, (index+1)%len(gateways))
			}
			return remember(failed, doubt)
		}
	}
	panic("lockclient: a client without a gateway")
}

// prefer makes another gateway the preferred one, unless that has changed since.
func (c *Client) prefer(before int64, index int) {
	if before != int64(index) {
		c.preferred.CompareAndSwap(before, int64(index))
	}
}

// notServed says that another gateway may answer differently.
func notServed(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrForeignAnswer)
}

// attempt sends a call to one gateway.
func (a *API) attempt(ctx context.Context, call request, at gateway, last bool) error {
	if err := ctx.Err(); err != nil {
		return endedWith(ctx, at.noAnswer(call, api.OutcomeNotApplied, err), nil)
	}
	limited := ctx
	// There is no limit but the caller's where the caller has a deadline and no other gateway is left.
	if _, hasDeadline := ctx.Deadline(); a.limit > 0 || !hasDeadline || !last {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, cmp.Or(a.limit, a.client.answerTimeout)+call.wait)
		defer cancel()
	}
	return endedWith(ctx, a.client.exchange(limited, call, at), nil)
}

// Call is a request to a path of the HTTP API, for [API.Call].
type Call struct {
	// Op names the call in errors, such as "list keys". Name follows it if Path has one.
	Op string
	// Method defaults to GET. Every other method counts as a change, whose outcome may be unknown.
	Method string
	// Path begins with a slash and is sent as it is, but for {name}: Name stands there, escaped.
	Path string
	// Name is that of a lock or resource. A name that would arrive as another one is refused as ErrInvalidName.
	Name string
	// Query has the parameters. Those with an empty value are left out, so that the gateway's defaults apply.
	Query map[string]string
	// Body is sent as JSON; nil: none.
	Body any
	// Idempotent says that a change may be sent again after an unknown outcome: it is applied once.
	Idempotent bool
	// Repeat says in the error of an unknown outcome how to repeat the change. Default "send the same again".
	Repeat string
	// Check, if set, is called when the answer is decoded. It returns what is missing from it: such an answer is an
	// ErrForeignAnswer. Empty: nothing.
	Check func() (missing string)
}

// Call sends a request to a path for which this package has no method, as its other methods do, and decodes the answer's
// JSON into answer, a pointer; nil ignores it. An answer that can't be decoded is an ErrForeignAnswer.
func (a *API) Call(ctx context.Context, call Call, answer any) error {
	sent := call.request()
	if answer != nil {
		sent.check = decodeInto(answer, call.Check)
	}
	return a.send(ctx, sent)
}

func (c Call) request() request {
	sent := request{op: c.Op, method: cmp.Or(c.Method, http.MethodGet), path: c.Path}
	if before, after, named := strings.Cut(c.Path, "{name}"); named {
		sent = nameCall(c.Op, sent.method, before, c.Name, after)
	}
	sent.query, sent.idempotent = url.Values{}, c.Idempotent
	for name, value := range c.Query {
		if value != "" {
			sent.query.Set(name, value)
		}
	}
	if c.Body != nil {
		sent = sent.withJSON(c.Body)
	}
	if sent.method != http.MethodGet {
		sent.repeat = cmp.Or(c.Repeat, repeatAsIs)
	}
	return sent
}

// fetch sends a call and reads its answer as JSON. lacks, if set, names a missing part; such an answer is foreign.
func fetch[T any](ctx context.Context, a *API, call request, lacks func(T) string) (result T, err error) {
	call.check = decodeInto(&result, func() string {
		if lacks == nil {
			return ""
		}
		return lacks(result)
	})
	if err := a.send(ctx, call); err != nil {
		return *new(T), err
	}
	return result, nil
}

// decodeInto returns a check that decodes an answer. Each gateway's answer is decoded anew.
func decodeInto(into any, check func() string) func(answer) string {
	return func(got answer) string {
		fresh := reflect.New(reflect.TypeOf(into).Elem())
		if err := json.Unmarshal(got.body, fresh.Interface()); err != nil {
			return "its body is not the JSON that was expected (" + err.Error() + ")"
		}
		reflect.ValueOf(into).Elem().Set(fresh.Elem())
		if check == nil {
			return ""
		}
		return check()
	}
}

// Ready returns nil if the gateway can serve: its database is reachable and migrated. Otherwise it returns
// ErrUnavailable; the problem gives the reason.
func (a *API) Ready(ctx context.Context) error {
	return a.Call(ctx, Call{Op: "check readiness", Path: "/readyz"}, new(api.Health))
}

// Alive returns nil if the gateway's process runs, even if its database doesn't. Otherwise it returns ErrUnavailable.
func (a *API) Alive(ctx context.Context) error {
	return a.Call(ctx, Call{Op: "check health", Path: "/healthz"}, new(api.Health))
}
