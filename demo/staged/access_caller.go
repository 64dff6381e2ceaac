package staged

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// accessCaller is a program with one credential, which it shows to both gateways.
type accessCaller struct {
	name, credential string // as they are printed
	clients          []*lockclient.Client
}

// caller returns a caller with a bearer credential, by the option, or with client certificates.
func (r *accessRun) caller(
	name, credential string, option lockclient.Option, certificates ...tls.Certificate,
) (*accessCaller, error) {
	c := &accessCaller{name: name, credential: credential}
	for _, gateway := range r.gateways {
		options := []lockclient.Option{lockclient.WithTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: r.authority.Pool(), Certificates: certificates,
		})}
		if option != nil {
			options = append(options, option)
		}
		client, err := lockclient.New(gateway.URL, options...)
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	return c, nil
}

// attempt is an acquire with the code of its answer; "": a lease.
type attempt struct {
	caller *accessCaller
	lock   string
	want   api.Code
}

// expect makes each attempt at both gateways, releases what is granted, and prints the answers. It returns demo.ErrUnexpected
// if one is not as wanted.
func (r *accessRun) expect(ctx context.Context, attempts ...attempt) error {
	for _, a := range attempts {
		for n, client := range a.caller.clients {
			got, err := acquireOnce(ctx, client, a.lock)
			if err != nil {
				return err
			}
			if got != a.want {
				return r.unexpected(a.caller, "acquires %s by %s at gateway %d: %s", a.lock, a.caller.credential, n+1,
					answerText(got))
			}
		}
		r.print(demo.Event{Event: eventOf(a.want), Actor: a.caller.name, Code: string(a.want), Text: fmt.Sprintf(
			"acquires %s by %s at both gateways: %s", a.lock, a.caller.credential, answerText(a.want))})
	}
	return nil
}

// acquireOnce tries to acquire the lock and returns the code of the answer.
func acquireOnce(ctx context.Context, client *lockclient.Client, lock string) (api.Code, error) {
	lease, err := client.API().Acquire(ctx, lock, api.AcquireRequest{OwnerID: client.Owner()})
	if err == nil {
		return "", client.API().Release(ctx, lock, api.ReleaseRequest{
			OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
		})
	}
	return codeOf(err)
}

func codeOf(err error) (api.Code, error) {
	var refusal *lockclient.Error
	if errors.As(err, &refusal) && refusal.Problem.Status != 0 {
		return refusal.Problem.Code, nil
	}
	return "", err
}

// until asks gateway n, from 1, who the caller is, until the answer has this code ("": it is known) or the limit has
// passed. It prints after what time that was, since then, and returns demo.ErrUnexpected if it was too late.
func (r *accessRun) until(
	ctx context.Context, c *accessCaller, n int, want api.Code, since time.Time, limit time.Duration,
) error {
	for {
		code := api.Code("")
		_, err := admin.New(c.clients[n-1]).WhoAmI(ctx)
		if err != nil {
			if code, err = codeOf(err); err != nil {
				return err
			}
		}
		after := time.Since(since)
		switch {
		case code == want:
			r.print(demo.Event{Event: eventOf(want), Actor: c.name, Code: string(want), Text: fmt.Sprintf(
				"shows %s to gateway %d: %s, after %.3fs", c.credential, n, answerText(want), after.Seconds())})
			return nil
		case after > limit:
			return r.unexpected(c, "shows %s to gateway %d: %s, still after %s", c.credential, n, answerText(code), after)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *accessRun) unexpected(c *accessCaller, format string, values ...any) error {
	ok, text := false, fmt.Sprintf(format, values...)
	r.print(demo.Event{Event: "result", OK: &ok, Text: "Result: UNEXPECTED: " + c.name + " " + text})
	return fmt.Errorf("%w: %s %s", demo.ErrUnexpected, c.name, text)
}

func eventOf(code api.Code) string {
	if code == "" {
		return "accepted"
	}
	return "refused"
}

func answerText(code api.Code) string {
	if code == "" {
		return "accepted"
	}
	return "REFUSED, " + string(code)
}
