package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// casesAtOnce is how many cases a runner runs at once: most of them wait most of the time.
const casesAtOnce = 12

// runGo runs the cases with the Go client.
func runGo(t *testing.T, cases []contractCase, at place) []verdict {
	t.Helper()
	// Without a deadline, so that the client's own limits apply.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(await.Limit, cancel).Stop()
	verdicts := make([]verdict, len(cases))
	var running sync.WaitGroup
	slots := make(chan struct{}, casesAtOnce)
	for i, each := range cases {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			verdicts[i].Case = each.Name
			verdicts[i].Lacks = map[string]string{
				"freeze":             "it runs in this process; internal/test/sdk freezes one",
				"values of any type": "a value is bytes",
			}[each.Needs]
			if verdicts[i].Lacks != "" {
				return
			}
			if err := runCase(ctx, fmt.Sprint("go-", i), each, at); err != nil {
				verdicts[i].Error = err.Error()
			}
		})
	}
	running.Wait()
	return verdicts
}

// caseRun runs one case.
type caseRun struct {
	run     string // the case's part of all names
	at      place
	clients map[string]*lockclient.Client

	mu     sync.Mutex
	leases map[string]*lockclient.Lease
	tasks  map[string]*task
}

// task is a step in the background.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
	result result
	err    error
}

// result is what a step returns, in the words of cases.json.
type result map[string]any

// patient gives a client as long as it takes to read a lock, but for the one of the case in which no answer comes: the
// holder after a loss must not depend on how fast the machine is.
type patient struct{}

func (patient) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "/asked") {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func runCase(ctx context.Context, run string, each contractCase, at place) error {
	r := &caseRun{
		run: run, at: at, clients: map[string]*lockclient.Client{},
		leases: map[string]*lockclient.Lease{}, tasks: map[string]*task{},
	}
	addresses := at.addresses(run)
	gateways := []string{addresses["proxy"]}
	if each.Client.Gateways != nil {
		gateways = nil
		for _, name := range each.Client.Gateways {
			gateways = append(gateways, addresses[name])
		}
	}
	defer r.close()
	for name, urls := range map[string][]string{"main": gateways, "other": {at.gatewayURL}} {
		var answerBytesMax int64
		if name == "main" {
			answerBytesMax = each.Client.AnswerBytesMax
		}
		client, err := lockclient.New(urls[0], lockclient.WithFailover(urls[1:]...), lockclient.WithOwner(run+"/"+name),
			lockclient.WithToken(apiKey), lockclient.WithLogger(slog.New(slog.DiscardHandler)),
			lockclient.WithHTTPClient(&http.Client{Transport: patient{}}),
			lockclient.WithAnswerBytesMax(answerBytesMax),
			lockclient.WithAnswerTimeout(time.Duration(each.Client.AnswerTimeoutMS)*time.Millisecond))
		if err != nil {
			return err
		}
		r.clients[name] = client
	}
	return r.steps(ctx, each.Steps)
}

func (t *caseRun) close() {
	for _, client := range t.clients {
		client.Close()
	}
}

func (t *caseRun) steps(ctx context.Context, steps []step) error {
	for i, each := range steps {
		if err := t.step(ctx, each); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, each.Do, err)
		}
	}
	return nil
}

func (t *caseRun) step(ctx context.Context, s step) error {
	if s.Background != "" {
		t.start(ctx, s)
		return nil
	}
	if s.Raises {
		_, err := t.perform(ctx, s)
		return raised{err}
	}
	for {
		got, err := t.perform(ctx, s)
		fault := t.fault(s.Expect, got, err)
		if fault == nil || !s.Until || ctx.Err() != nil {
			return fault
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (t *caseRun) start(ctx context.Context, s step) {
	ctx, cancel := context.WithCancel(ctx)
	started := &task{cancel: cancel, done: make(chan struct{})}
	t.mu.Lock()
	t.tasks[s.Background] = started
	t.mu.Unlock()
	go func() {
		defer close(started.done)
		defer cancel()
		started.result, started.err = t.perform(ctx, s)
	}()
}

func (t *caseRun) lease(name string) *lockclient.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leases[name]
}

func (t *caseRun) keep(name string, lease *lockclient.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases[name] = lease
}

// client is the case's own, through the proxy, unless the step names the other.
func (t *caseRun) client(s step) *lockclient.Client {
	if s.Client != "" {
		return t.clients[s.Client]
	}
	return t.clients["main"]
}

// lock is the full name of the step's lock.
func (t *caseRun) lock(s step) string {
	if s.Lock == "" {
		return t.run
	}
	return t.run + "/" + s.Lock
}

var errWork = errors.New("the work failed")

// perform does what the step says.
func (t *caseRun) perform(ctx context.Context, s step) (result, error) {
	lease := t.lease(s.Lease)
	switch s.Do {
	case "acquire":
		opts := leaseOptions(s)
		if !s.Heartbeat {
			opts = append(opts, lockclient.WithoutHeartbeat())
		}
		lease, err := t.client(s).Acquire(ctx, t.lock(s), opts...)
		if err != nil {
			return nil, err
		}
		t.keep(s.Lease, lease)
		return leaseResult(lease), nil
	case "do":
		return nil, t.client(s).Do(ctx, t.lock(s), func(ctx context.Context, lease *lockclient.Lease) error {
			t.keep(s.Lease, lease)
			err := t.steps(context.WithoutCancel(ctx), s.Steps)
			var by raised
			if errors.As(err, &by) {
				return by.error
			}
			if err != nil && !errors.Is(err, errWork) {
				return caseError{err}
			}
			return err
		}, leaseOptions(s)...)
	case "renew":
		err := lease.Renew(ctx)
		return leaseResult(lease), err
	case "release":
		return nil, lease.Release(ctx)
	case "check":
		return leaseResult(lease), nil
	case "lost", "work_until_stopped":
		<-lease.Context().Done()
		return describe(context.Cause(lease.Context())), nil
	case "fail":
		return nil, errWork
	case "put", "delete", "transaction", "writes", "get":
		return t.records(ctx, s, lease)
	}
	return t.control(ctx, s)
}

func leaseOptions(s step) []lockclient.LeaseOption {
	var opts []lockclient.LeaseOption
	if s.TTLMS > 0 {
		opts = append(opts, lockclient.WithTTL(time.Duration(s.TTLMS)*time.Millisecond))
	}
	if s.WaitMS > 0 {
		opts = append(opts, lockclient.WithWait(time.Duration(s.WaitMS)*time.Millisecond))
	}
	if s.Mode == "shared" {
		opts = append(opts, lockclient.Shared())
	}
	return opts
}

func leaseResult(lease *lockclient.Lease) result {
	left := lease.ExpiresIn()
	got := result{
		"token": lease.FencingToken(), "owner": lease.Owner(), "valid": lease.Valid(), "expires_in_ms": left.Milliseconds(),
	}
	if err := lease.Err(); err != nil {
		got["error"] = describe(err)["error"]
	}
	return got
}

// records performs the writes and the read.
func (t *caseRun) records(ctx context.Context, s step, lease *lockclient.Lease) (result, error) {
	var opts []lockclient.WriteOption
	if s.ContentType != "" {
		opts = append(opts, lockclient.WithContentType(s.ContentType))
	}
	if s.IfVersion != nil {
		opts = append(opts, lockclient.IfVersion(*s.IfVersion))
	}
	if s.IfAbsent {
		opts = append(opts, lockclient.IfAbsent())
	}
	switch s.Do {
	case "put":
		got, err := lease.Put(ctx, s.Key, fmt.Append(nil, s.Value), opts...)
		return result{"version": got.Version, "sequence": got.Sequence, "replayed": got.Replayed}, err
	case "delete":
		got, err := lease.Delete(ctx, s.Key, opts...)
		return result{"version": got.Version, "sequence": got.Sequence, "replayed": got.Replayed}, err
	case "writes":
		var outcomes []string
		for i := range s.Writes {
			s.Writes[i].Resource, s.Writes[i].FencingToken = t.lock(s), new(lease.FencingToken())
		}
		for _, outcome := range t.client(s).Writes(ctx, s.Writes) {
			word := "applied"
			if outcome.Err != nil {
				word = fmt.Sprint(describe(outcome.Err)["error"])
			} else if outcome.Result.Replayed {
				word = "replayed"
			}
			if errors.Is(outcome.Err, lockclient.ErrOutcomeUnknown) {
				word += "?"
			}
			outcomes = append(outcomes, word)
		}
		return result{"outcomes": strings.Join(outcomes, " ")}, nil
	case "transaction":
		ops := make([]api.Op, len(s.Ops))
		for i, op := range s.Ops {
			if err := json.Unmarshal(op, &ops[i]); err != nil {
				return nil, err
			}
		}
		got, err := lease.Transaction(ctx, ops...)
		return result{"results": len(got.Results), "replayed": got.Replayed}, err
	}
	got, err := t.client(s).API().Get(ctx, t.lock(s), s.Key)
	return result{
		"value": string(got.Value), "version": got.Version, "content_type": got.ContentType, "token": got.Token.Token,
		"sequence": got.Token.Sequence,
	}, err
}

// control performs the steps that are no calls of a lease.
func (t *caseRun) control(ctx context.Context, s step) (result, error) {
	t.mu.Lock()
	of := t.tasks[s.Of]
	t.mu.Unlock()
	switch s.Do {
	case "join":
		select {
		case <-of.done:
		case <-ctx.Done():
			return nil, caseError{errors.New("it did not end")}
		}
		return of.result, of.err
	case "cancel":
		of.cancel()
		return nil, nil
	case "state":
		state, err := t.clients["other"].API().Lock(ctx, t.lock(s))
		return result{
			"state": state.State, "token": state.FencingToken, "holders": len(state.Holders), "queue": len(state.Queue),
		}, err
	case "break":
		_, err := admin.New(t.clients["other"]).Break(ctx, t.lock(s), api.BreakRequest{Reason: "a test"})
		return nil, err
	case "pause":
		time.Sleep(time.Duration(s.MS) * time.Millisecond)
		return nil, nil
	case "harm":
		return t.askProxy(ctx, "harm", network.Harm{Path: s.Path, Faults: s.Faults, Always: s.Always})
	case "let_go":
		return t.askProxy(ctx, "let_go", nil)
	case "calls":
		return t.askProxy(ctx, "calls?path="+url.QueryEscape(s.Path), nil)
	}
	return nil, caseError{errors.New("it is no step")}
}

func (t *caseRun) askProxy(ctx context.Context, command string, body any) (got result, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, t.at.proxyURL+"/"+t.run+"/-/"+command, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	err = json.NewDecoder(answer.Body).Decode(&got)
	return got, err
}
