package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// variableBearer has a credential. No flag has: process lists show those. FENCEGATE_TOKEN is a fencing token.
const variableBearer = "FENCEGATE_BEARER_TOKEN"

// connectionFlags say how commands identify gateways, and themselves.
type connectionFlags struct {
	CACert    string `group:"connection" help:"PEM file of the authority that has signed the gateways' certificates. Default: the system's." name:"ca-cert" type:"path" placeholder:"PATH"`
	Cert      string `group:"connection" help:"PEM file of the client's certificate; it is read for each connection." type:"path" placeholder:"PATH"`
	Key       string `group:"connection" help:"PEM file of the private key of --cert." type:"path" placeholder:"PATH"`
	TokenFile string `group:"connection" help:"File of the API key or token to send; it is read again when it changes. Without it, FENCEGATE_BEARER_TOKEN has the credential itself." type:"path" placeholder:"PATH"`
}

// token returns the option that sends the credential; none if there is no credential.
func (f connectionFlags) token() []lockclient.Option {
	if f.TokenFile != "" {
		return []lockclient.Option{lockclient.WithTokenFile(f.TokenFile)}
	}
	if token := os.Getenv(variableBearer); token != "" {
		return []lockclient.Option{lockclient.WithToken(token)}
	}
	return nil
}

// tls returns nil if no flag is given.
func (f connectionFlags) tls() (*tls.Config, error) {
	if f.CACert == "" && f.Cert == "" && f.Key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CACert != "" {
		text, err := os.ReadFile(f.CACert)
		if err != nil {
			return nil, usagef("--ca-cert: %v", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--ca-cert: %s has no certificate in PEM", f.CACert)
		}
	}
	if f.Cert != "" || f.Key != "" {
		own := &clientCertificate{path: f.Cert, keyPath: cmp.Or(f.Key, f.Cert)}
		if _, err := own.get(nil); err != nil {
			return nil, usagef("--cert and --key: %v", err)
		}
		config.GetClientCertificate = own.get
	}
	return config, nil
}

// withScheme completes a bare address, host:port: with https where TLS is configured by flags, else with http.
func (f connectionFlags) withScheme(url string) string {
	if strings.Contains(url, "/") {
		return url
	}
	if _, port, err := net.SplitHostPort(url); err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		return url
	}
	if f.CACert != "" || f.Cert != "" {
		return "https://" + url
	}
	return "http://" + url
}

// environment has the flags for commands that are started under this one. They inherit FENCEGATE_BEARER_TOKEN.
func (f connectionFlags) environment() []string {
	var environment []string
	for variable, value := range map[string]string{
		"FENCEGATE_CA_CERT": f.CACert, "FENCEGATE_CERT": f.Cert, "FENCEGATE_KEY": f.Key, "FENCEGATE_TOKEN_FILE": f.TokenFile,
	} {
		if value != "" {
			environment = append(environment, variable+"="+value)
		}
	}
	return environment
}

// clientCertificate reads a certificate and its key for each connection: they may be renewed.
type clientCertificate struct {
	path, keyPath string
	last          atomic.Pointer[tls.Certificate]
}

// get returns the certificate in the files, or the last one if they can't be used, such as between the writes of the
// two.
func (c *clientCertificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(c.path, c.keyPath)
	if err == nil {
		c.last.Store(&certificate)
	} else if c.last.Load() == nil {
		return nil, err
	}
	return c.last.Load(), nil
}

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
	options = append(append(options, f.token()...), lockclient.WithTLS(config), lockclient.WithUserAgent(userAgent()),
		lockclient.WithLogger(slog.New(slog.DiscardHandler)))
	client, err := lockclient.New(f.withScheme(url), options...)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "lockclient: ")
		switch {
		case strings.HasPrefix(why, "the token file is"):
			flag = "--token-file"
		case strings.HasPrefix(why, "the token is"):
			flag = variableBearer
		}
		return nil, usagef("%s: %s", flag, why)
	}
	return client, nil
}

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

// calls are those of a gateway's API: of clients, and of administrators.
type calls struct {
	*lockclient.API
	*admin.Client
}

// call runs the work of a command, with a client and within the timeout.
func (f clientFlags) call(ctx context.Context, work func(context.Context, calls) error) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return work(ctx, calls{client.API(), admin.New(client)})
}

// answer makes one call to the gateway, and shows its answer.
func answer[T any](
	ctx context.Context, con *console, flags clientFlags, fields func(T) []field,
	call func(context.Context, calls) (T, error),
) error {
	return flags.call(ctx, func(ctx context.Context, gateway calls) error {
		answer, err := call(ctx, gateway)
		if err != nil {
			return err
		}
		return con.show(answer, fields(answer))
	})
}

// leaseFlags name a lease that the caller holds.
type leaseFlags struct {
	OwnerID string     `help:"The owner." default:"${owner}"`
	LeaseID string     `help:"The secret of the lease, which acquire printed." required:"" placeholder:"UUID"`
	Token   leaseToken `help:"The fencing token of the lease, without a sequence." required:"" placeholder:"TOKEN"`
}

// leaseToken is a fencing token without a sequence.
type leaseToken int64

// UnmarshalText reads the flag.
func (t *leaseToken) UnmarshalText(text []byte) error {
	token, _, sequenced := strings.Cut(string(text), ".")
	number, err := strconv.ParseInt(token, 10, 64)
	switch {
	case token == "":
		return noToken(text)
	case err != nil:
		return fmt.Errorf("%q is not a fencing token, such as 34", text)
	case sequenced:
		return fmt.Errorf("%s has a sequence, and a lease has none: give %s", text, token)
	}
	*t = leaseToken(number)
	return nil
}

// noToken is the error of a text like "$FENCEGATE_TOKEN.1" where the variable is not set.
func noToken(text []byte) error {
	return fmt.Errorf("%q has no token: what \"fencegate lock acquire -o env\" prints sets FENCEGATE_TOKEN, unless it fails",
		text)
}

// tokenFlag reads 34, or 34.2 with a sequence.
type tokenFlag struct{ api.FencingToken }

// UnmarshalText reads the flag.
func (t *tokenFlag) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 || text[0] == '.' {
		return noToken(text)
	}
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

// millisecondsFlag is a duration as the API has it; nil if it was not given.
type millisecondsFlag struct{ ms *int64 }

// Decode reads the flag.
func (m *millisecondsFlag) Decode(ctx *kong.DecodeContext) error {
	duration, err := readDuration(ctx)
	if err == nil && duration%time.Millisecond != 0 {
		err = fmt.Errorf("%s is not whole milliseconds", duration)
	}
	m.ms = new(duration.Milliseconds())
	return err
}

// durationFlag reads flags of the type time.Duration.
func durationFlag(ctx *kong.DecodeContext, target reflect.Value) error {
	duration, err := readDuration(ctx)
	target.SetInt(int64(duration))
	return err
}

// readDuration reads a duration, within the limits that the tag of the flag has for its help, such as "100ms to 24h".
func readDuration(ctx *kong.DecodeContext) (time.Duration, error) {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return 0, err
	}
	duration, err := parseDuration(text)
	limits, limited := ctx.Value.Tag.Vars["limits"]
	if err != nil || !limited {
		return duration, err
	}
	from, to, _ := strings.Cut(limits, " to ")
	least, err := parseDuration(from)
	if err != nil {
		return 0, err
	}
	most, err := parseDuration(to)
	if err == nil && (duration < least || duration > most) {
		err = fmt.Errorf("it is %s, it must be %s", text, limits)
	}
	return duration, err
}

// parseDuration is time.ParseDuration with an error that shows what is missing.
func parseDuration(text string) (time.Duration, error) {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: give a number and a unit, such as 500ms, 1s, 5m or 24h", text)
	}
	return duration, nil
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
