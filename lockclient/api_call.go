package lockclient

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

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
	sent, err := call.request()
	if err != nil {
		return err
	}
	if answer != nil {
		sent.check = decodeInto(answer, call.Check)
	}
	return a.send(ctx, sent)
}

func (c Call) request() (request, error) {
	sent := request{
		op: c.Op, method: cmp.Or(c.Method, http.MethodGet), path: c.Path, query: url.Values{}, idempotent: c.Idempotent,
	}
	if before, after, named := strings.Cut(c.Path, "{name}"); named {
		sent.op += " " + c.Name
		path, err := namePath(sent.op, c.Name)
		if err != nil {
			return sent, err
		}
		sent.path = before + path + after
	}
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
	return sent, sent.err
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
