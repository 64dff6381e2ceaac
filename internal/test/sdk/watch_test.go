package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// awaitState reads up to the next state that a function accepts.
func awaitState(t *testing.T, watch *lockclient.Watch, accept func(api.WatchState) bool) api.WatchState {
	t.Helper()
	for state, err := range watch.All(await.Context(t)) {
		check(t, err)
		if accept(state) {
			return state
		}
	}
	panic("unreachable")
}

func isFree(state api.WatchState) bool { return state.State == "free" }
func isHeld(state api.WatchState) bool { return state.State == "held" }

// A watch of an election's lock shows its leaders, with their terms and metadata.
func TestElectAndWatch(t *testing.T) {
	t.Parallel()
	client, election := shared(t)
	ctx := await.Context(t)
	watch, err := client.Watch(ctx, election)
	check(t, err)
	defer watch.Close()
	free, err := watch.Next(ctx)
	if err != nil || !isFree(free) || free.FencingToken != 0 || free.Lock.Lock != election {
		t.Errorf("the first state is %+v, %v, expected free", free, err)
	}
	metadata := lockclient.WithMetadata(map[string]string{"url": "http://a"})
	first, err := client.Elect(ctx, election, lockclient.WithLeaseOwner("a"), metadata)
	check(t, err)
	led := awaitState(t, watch, isHeld)
	if leader := led.Holders[0]; leader.OwnerID != "a" || leader.FencingToken != first.FencingToken() ||
		string(leader.Metadata) != `{"url":"http://a"}` || led.Version <= free.Version {
		t.Errorf("after %+v the state is %+v, expected that a leads", free, led)
	}
	_, err = client.Elect(ctx, election, lockclient.WithLeaseOwner("b"), lockclient.WithWait(0))
	wantErr(t, "a try of b", err, lockclient.ErrLockHeld)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		next, err := client.Elect(ctx, election, lockclient.WithLeaseOwner("b")) // waits until ctx ends
		if err != nil || next.FencingToken() <= first.FencingToken() {
			t.Errorf("b's candidacy returned %v", err)
			return
		}
		defer next.ReleaseOnce()
		wantErr(t, "a's context", causeOf(t, "a's context", first.Context()), lockclient.ErrLeaseReleased)
		awaitState(t, watch, func(state api.WatchState) bool { return isHeld(state) && state.Holders[0].OwnerID == "b" })
	})
	awaitState(t, watch, func(state api.WatchState) bool { return state.QueueLength == 1 })
	check(t, first.Release(ctx))
	waiting.Wait()
	awaitState(t, watch, isFree)
}

// A reader may cancel one Next and read on. A watch ends with its ctx, its Close, and its client.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx, end := context.WithCancel(await.Context(t))
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	awaitState(t, watch, isFree)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	wantErr(t, "Next", second(watch.Next(short)), context.DeadlineExceeded)
	lease := mustAcquire(t, client, lock)
	awaitState(t, watch, isHeld)
	check(t, lease.Release(ctx))
	awaitState(t, watch, isFree)
	wantEnd(t, watch, end, context.Canceled)
	watch, err = client.Watch(await.Context(t), lock)
	check(t, err)
	wantEnd(t, watch, watch.Close, lockclient.ErrClosed)
	watch, err = client.Watch(await.Context(t), lock)
	check(t, err)
	wantEnd(t, watch, client.Close, lockclient.ErrClosed)
}

// wantEnd ends a watch while a reader waits, and expects the reader's error.
func wantEnd(t *testing.T, watch *lockclient.Watch, end func(), want error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := watch.Next(context.Background()); err != nil {
				ended <- err
				return
			}
		}
	}()
	end()
	wantErr(t, "the reader", await.Receive(t, "the end of the reader", ended), want)
	watch.Close()
	watch.Close()
}

// A stream is opened again after its end, a cut, or an error. Events that a newer gateway sends are skipped.
func TestStreamsReconnect(t *testing.T) {
	t.Parallel()
	turn := 0
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		turn++
		switch turn {
		case 3:
			unavailable(api.OutcomeNotApplied)(w, r)
			return
		case 4:
			w.WriteHeader(http.StatusBadGateway)
			return
		case 6:
			writeProblem(w, api.Problem{Status: http.StatusForbidden, Code: api.CodeForbidden})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = fmt.Fprintf(w, "retry: 1\n: hello\n\nevent: new\ndata: {}\n\nevent: state\ndata: {\"version\":%d}\n\n", turn)
		if turn == 2 {
			_, _ = fmt.Fprint(w, "event: end\ndata: {\"reason\":\"shutdown\"}\n\nevent: state\ndata: {}\n\n")
			return
		}
		_, _ = fmt.Fprint(w, "event: state\ndata: {\"vers")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	watch, err := newClient(t, url).Watch(t.Context(), "a")
	check(t, err)
	defer watch.Close()
	var got []int64
	for state, err := range watch.All(await.Context(t)) {
		if err != nil {
			wantErr(t, "the last Next", err, lockclient.ErrForbidden)
			break
		}
		got = append(got, state.Version)
	}
	if fmt.Sprint(got) != "[1 2 5]" {
		t.Errorf("saw the versions %v, expected 1, 2 and 5", got)
	}
}

func TestRejectionsOfAllPages(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	for i := range 5 {
		_, err := client.API().Put(ctx, lock, fmt.Sprint("k", i), lockclient.Write{Token: numbered(1<<50+int64(i), 1)})
		wantErr(t, "Put", err, lockclient.ErrTokenUnknown)
	}
	query := admin.RejectionsQuery{Resource: lock, Limit: 2}
	await.True(t, "five rejections", func() bool {
		seen := map[string]bool{}
		for rejection, err := range admin.New(client).AllRejections(ctx, query) {
			check(t, err)
			seen[rejection.Key] = true
		}
		return len(seen) == 5
	})
	for _, err := range admin.New(client).AllRejections(ctx, query) {
		check(t, err)
		break
	}
	for _, err := range admin.New(client).AllRejections(ctx, admin.RejectionsQuery{Limit: -1}) {
		if !errors.Is(err, lockclient.ErrInvalidRequest) {
			t.Errorf("a limit of -1 returned %v", err)
		}
	}
}
