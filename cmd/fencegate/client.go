package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// gatewayFlags say where the gateways are, and how to connect.
type gatewayFlags struct {
	connectionFlags

	URL []string `group:"connection" help:"URL of the gateway. Several on one database are given by repeating the flag, or with commas; the next is called if one does not serve." default:"http://127.0.0.1:8080"`
}

// client makes one of all the gateways. It does not log: commands report failures in their own form.
func (f gatewayFlags) client(options ...lockclient.Option) (*lockclient.Client, error) {
	if len(f.URL) == 0 {
		return nil, usagef("--url names no gateway")
	}
	urls := f.urls()
	return f.connect("--url", urls[0], append(options, lockclient.WithFailover(urls[1:]...))...)
}

// urls are those of all gateways, each with a scheme.
func (f gatewayFlags) urls() []string {
	urls := make([]string, len(f.URL))
	for i, url := range f.URL {
		urls[i] = f.withScheme(url)
	}
	return urls
}

// connect makes a client of one gateway, which a flag names, unless an option names more.
func (f connectionFlags) connect(flag, url string, options ...lockclient.Option) (*lockclient.Client, error) {
	config, err := f.tls()
	if err != nil {
		return nil, err
	}
	options = append(append(options, f.token()...), lockclient.WithTLS(config), lockclient.WithUserAgent(userAgent()), withoutLog)
	client, err := lockclient.New(f.withScheme(url), options...)
	if err != nil {
		return nil, usagef("%s: %v", flag, err)
	}
	return client, nil
}

var withoutLog = lockclient.WithLogger(slog.New(slog.DiscardHandler))

func userAgent() string { return "fencegate-cli/" + programVersion() }

// clientFlags are those of every command that calls a gateway.
type clientFlags struct {
	gatewayFlags
	outputFlag

	Timeout time.Duration `group:"connection" help:"How long the gateway may take." default:"30s"`
}

// AfterApply is called by the parser.
func (f clientFlags) AfterApply(con *console) error {
	if f.Timeout <= 0 {
		return usagef("--timeout is %s, it must be positive", f.Timeout)
	}
	return f.outputFlag.AfterApply(con)
}

// call runs the work of a command, with a client and within the timeout.
func (f clientFlags) call(ctx context.Context, work func(context.Context, *lockclient.Client) error) error {
	return f.callWaiting(ctx, 0, work)
}

// callWaiting adds the wait for the lock to the time that the call may take.
func (f clientFlags) callWaiting(
	ctx context.Context, wait time.Duration, work func(context.Context, *lockclient.Client) error,
) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, f.Timeout+wait)
	defer cancel()
	return work(ctx, client)
}

// answer makes one call to the gateway, and shows its answer.
func answer[T any](
	ctx context.Context, con *console, flags clientFlags, fields func(T) []field,
	call func(context.Context, *lockclient.Client) (T, error),
) error {
	return flags.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		answer, err := call(ctx, client)
		if err != nil {
			return err
		}
		return con.show(answer, fields(answer))
	})
}

// leaseFlags name a lease that the caller holds.
type leaseFlags struct {
	OwnerID string `help:"The owner." default:"${owner}"`
	LeaseID string `help:"The secret of the lease, which acquire printed." required:"" placeholder:"UUID"`
	Token   int64  `help:"The fencing token of the lease, without a sequence." required:"" placeholder:"TOKEN"`
}

// tokenFlag reads 34, or 34.2 with a sequence.
type tokenFlag struct{ api.FencingToken }

// UnmarshalText reads the flag.
func (t *tokenFlag) UnmarshalText(text []byte) (err error) {
	t.FencingToken, err = api.ParseFencingToken(string(text))
	return err
}

// jsonFlag is a JSON object.
type jsonFlag json.RawMessage

// UnmarshalText reads the flag.
func (j *jsonFlag) UnmarshalText(text []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return errors.New(`it must be a JSON object, like {"host":"a"}`)
	}
	*j = text
	return nil
}

// milliseconds is nil for a flag that was not given.
func milliseconds(flag string, duration *time.Duration) (*int64, error) {
	if duration == nil {
		return nil, nil
	}
	if *duration%time.Millisecond != 0 {
		return nil, usagef("%s is %s, it must be whole milliseconds", flag, duration)
	}
	return new(duration.Milliseconds()), nil
}

// defaultOwner is user@host, by which a person recognizes the holder of a lock.
func defaultOwner() string {
	name := "unknown"
	if current, err := user.Current(); err == nil && current.Username != "" {
		name = current.Username
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return name + "@" + host
}
