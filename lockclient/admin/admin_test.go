package admin_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// serve returns a client of fake gateways, one for each answer.
func serve(t *testing.T, answers ...http.HandlerFunc) *admin.Client {
	t.Helper()
	var urls []string
	for _, answer := range answers {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	client, err := lockclient.New(urls[0], lockclient.WithFailover(urls[1:]...),
		lockclient.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return admin.New(client)
}

func text(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func problem(status int, body string) http.HandlerFunc {
	return text(status, api.ProblemContentType, body)
}

// second drops a result.
func second[T any](_ T, err error) error { return err }

// Each call sends its method, its path and its query as the API defines them.
func TestRequests(t *testing.T) {
	t.Parallel()
	var got string
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.RequestURI()
		problem(404, `{"code":"not_found"}`)(w, r)
	})
	ctx := t.Context()
	instant := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
	for want, call := range map[string]func() error{
		"GET /v1/locks": func() error { return second(a.Locks(ctx, admin.LocksQuery{})) },
		"GET /v1/locks?cursor=c&limit=3&order=desc&prefix=p%2F&sort=name&state=held": func() error {
			return second(a.Locks(ctx, admin.LocksQuery{
				Prefix: "p/", State: "held", Sort: "name", Order: "desc", Limit: 3, Cursor: "c",
			}))
		},
		"GET /v1/rejections": func() error { return second(a.Rejections(ctx, admin.RejectionsQuery{})) },
		"GET /v1/rejections?code=token_stale&cursor=c&limit=1&owner_id=o&prefix=p&principal=w&reason=shared&resource=r&since=" +
			"2026-01-02T02%3A04%3A05.000006Z&sort=last_seen&source=http&until=2026-01-02T02%3A04%3A05Z": func() error {
			return second(a.Rejections(ctx, admin.RejectionsQuery{
				Resource: "r", Prefix: "p", Code: api.CodeTokenStale, Reason: "shared", Source: "http", OwnerID: "o",
				Principal: "w", Since: instant, Until: instant.Truncate(time.Second), LastSeen: true, Limit: 1, Cursor: "c",
			}))
		},
		"GET /v1/sessions": func() error { return second(a.Sessions(ctx, admin.SessionsQuery{})) },
		"GET /v1/sessions?cursor=c&limit=1&owner_id=o&state=live": func() error {
			return second(a.Sessions(ctx, admin.SessionsQuery{OwnerID: "o", State: "live", Limit: 1, Cursor: "c"}))
		},
		"GET /v1/waits":                    func() error { return second(a.Waits(ctx, "", 0)) },
		"GET /v1/waits?limit=5&lock=a%2Fb": func() error { return second(a.Waits(ctx, "a/b", 5)) },
		"GET /v1/audit":                    func() error { return second(a.Audit(ctx, admin.AuditQuery{})) },
		"GET /v1/audit?action=fence_set&cursor=c&limit=1&name=n&prefix=p&principal=w&since=2026-01-02T02%3A04%3A05.000006Z&" +
			"until=2026-01-02T02%3A04%3A05Z": func() error {
			return second(a.Audit(ctx, admin.AuditQuery{
				Action: "fence_set", Principal: "w", Name: "n", Prefix: "p", Since: instant, Until: instant.Truncate(time.Second),
				Limit: 1, Cursor: "c",
			}))
		},
		"GET /v1/audit/seals?after=7":     func() error { return second(a.AuditSeals(ctx, 7)) },
		"GET /v1/overview":                func() error { return second(a.Overview(ctx, 0)) },
		"GET /v1/overview?range_ms=60000": func() error { return second(a.Overview(ctx, time.Minute)) },
		"GET /v1/policies":                func() error { return second(a.Policies(ctx)) },
		"GET /v1/policies/":               func() error { return second(a.Policy(ctx, "")) },
		"GET /v1/policies/a/b%20c":        func() error { return second(a.Policy(ctx, "a/b c")) },
		"PUT /v1/resources/a/b/fence":     func() error { return second(a.SetFence(ctx, "a/b", api.FenceRequest{})) },
		"PUT /v1/policies/":               func() error { return second(a.PutPolicy(ctx, "", api.PolicyRequest{})) },
		"DELETE /v1/policies/a":           func() error { return a.DeletePolicy(ctx, "a") },
		"GET /v1/resources/a/b/fence":     func() error { return second(a.Fence(ctx, "a/b")) },
		"POST /v1/locks/a/break":          func() error { return second(a.Break(ctx, "a", api.BreakRequest{})) },
		"GET /v1/whoami":                  func() error { return second(a.WhoAmI(ctx)) },
		"GET /v1/keys":                    func() error { return second(a.Keys(ctx, admin.KeysQuery{})) },
		"GET /v1/keys?cursor=c&limit=1":   func() error { return second(a.Keys(ctx, admin.KeysQuery{Limit: 1, Cursor: "c"})) },
		"POST /v1/keys":                   func() error { return second(a.CreateKey(ctx, api.KeyRequest{})) },
		"POST /v1/keys/k%2Fx/rotate":      func() error { return second(a.RotateKey(ctx, "k/x", api.RotateRequest{})) },
		"DELETE /v1/keys/k":               func() error { return second(a.RevokeKey(ctx, "k")) },
	} {
		if err := call(); got != want || !errors.Is(err, lockclient.ErrNotFound) {
			t.Errorf("sent %s and returned %v, expected %s and not_found", got, err, want)
		}
	}
}

// A name or an id that would arrive as another path is not sent.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	a := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) })
	ctx := t.Context()
	for what, test := range map[string]struct{ err, want error }{
		"no name":         {second(a.Fence(ctx, "")), lockclient.ErrInvalidName},
		"a reserved name": {second(a.Break(ctx, "a/records", api.BreakRequest{})), lockclient.ErrInvalidName},
		"a dot segment":   {a.DeletePolicy(ctx, "a/.."), lockclient.ErrInvalidName},
		"no id":           {second(a.RevokeKey(ctx, "")), lockclient.ErrInvalidRequest},
		"a dot as an id":  {second(a.RotateKey(ctx, "..", api.RotateRequest{})), lockclient.ErrInvalidRequest},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s returned %v, expected %v", what, test.err, test.want)
		}
	}
}

// A change continues at the next gateway only if it was not applied, or may be applied twice. The error of an unknown
// outcome says how to repeat the change.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, test := range map[string]struct {
		call      func(*admin.Client) error
		continues bool
		repeat    string
	}{
		"list":       {func(a *admin.Client) error { return second(a.Policies(ctx)) }, true, ""},
		"revoke key": {func(a *admin.Client) error { return second(a.RevokeKey(ctx, "k")) }, true, "send the same again"},
		"break": {
			func(a *admin.Client) error { return second(a.Break(ctx, "a", api.BreakRequest{})) }, false, "send the same again",
		},
		"put policy": {
			func(a *admin.Client) error { return second(a.PutPolicy(ctx, "a", api.PolicyRequest{})) }, false, "send the same again",
		},
		"delete policy": {func(a *admin.Client) error { return a.DeletePolicy(ctx, "a") }, false, "send the same again"},
		"set fence": {
			func(a *admin.Client) error { return second(a.SetFence(ctx, "a", api.FenceRequest{})) }, false, "look at the fence",
		},
		"create key": {
			func(a *admin.Client) error { return second(a.CreateKey(ctx, api.KeyRequest{})) }, false, "look for a new key",
		},
	} {
		var reached atomic.Bool
		cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		err := test.call(serve(t, cut, func(w http.ResponseWriter, r *http.Request) { reached.Store(true); cut(w, r) }))
		unknown := test.repeat != ""
		if reached.Load() != test.continues || errors.Is(err, lockclient.ErrOutcomeUnknown) != unknown ||
			!errors.Is(err, lockclient.ErrUnavailable) || !strings.Contains(err.Error(), test.repeat) {
			t.Errorf("%s: the second gateway was asked: %t, error %v; expected %t, an unknown outcome: %t, and %q", name,
				reached.Load(), err, test.continues, unknown, test.repeat)
		}
	}
}

// An answer of 200 that is not the expected one is no success.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	page := serve(t, text(200, "text/html", "<h1>Welcome</h1>"))
	if err := second(page.Locks(ctx, admin.LocksQuery{})); !errors.Is(err, lockclient.ErrForeignAnswer) {
		t.Errorf("a page returned %v, expected ErrForeignAnswer", err)
	}
	keyless := serve(t, text(200, "application/json", `{"id":"k"}`))
	key, err := keyless.CreateKey(ctx, api.KeyRequest{})
	if !errors.Is(err, lockclient.ErrForeignAnswer) || key.ID != "" {
		t.Errorf("an answer without the key returned %+v, %v, expected ErrForeignAnswer and no key", key, err)
	}
	// Nothing of the first gateway's answer is left in the second one's.
	mixed := serve(t, text(200, "application/json", `{"policies":[{"prefix":"a","rule":1}]}`),
		text(200, "application/json", `{}`))
	if policies, err := mixed.Policies(ctx); err != nil || len(policies.Policies) != 0 {
		t.Errorf("Policies returned %+v, %v, expected the second gateway's empty list", policies, err)
	}
}
