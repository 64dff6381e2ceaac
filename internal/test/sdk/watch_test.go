package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// nextOf reads up to the next event of a kind.
func nextOf(t *testing.T, watch *lockclient.Watch[lockclient.Event], kind string) lockclient.Event {
	t.Helper()
	for event, err := range watch.All(await.Context(t)) {
		if err != nil {
			t.Fatalf("while waiting for an event %s: %v", kind, err)
		}
		if event.Kind == kind {
			return event
		}
	}
	panic("unreachable")
}

func TestWatch(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	defer watch.Close()
	state := nextOf(t, watch, api.EventState)
	if state.State == nil || state.State.State != "free" || state.State.Missed || state.Change != nil {
		t.Errorf("the state is %+v", state)
	}
	lease := mustAcquire(t, client, lock)
	granted := nextOf(t, watch, api.EventGranted)
	change := granted.Change
	if granted.ID <= state.ID || change.FencingToken != lease.FencingToken() || change.OwnerID != client.Owner() ||
		granted.State != nil {
		t.Errorf("the grant is %+v, %+v", granted, change)
	}
	check(t, lease.Renew(ctx))
	nextOf(t, watch, api.EventRenewed)
	check(t, lease.Release(ctx))
	nextOf(t, watch, api.EventReleased)
	wantErr(t, "Put after the release", second(lease.Put(ctx, "k", nil)), lockclient.ErrTokenStale)
	if got := nextOf(t, watch, api.EventRejected); got.Change.Code != api.CodeTokenStale || got.Change.Key != "k" {
		t.Errorf("the rejection is %+v", got.Change)
	}
	resumed, err := client.Watch(ctx, lock, lockclient.AfterEvent(granted.ID))
	check(t, err)
	defer resumed.Close()
	first, err := resumed.Next(ctx)
	if err != nil || (first.Kind != api.EventRenewed && first.Kind != api.EventState) {
		t.Errorf("the first event after %d is %+v, %v", granted.ID, first, err)
	}
}

// A reader may cancel one Next and read on. A watch ends with its ctx, its Close, and its client.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx, end := context.WithCancel(await.Context(t))
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	nextOf(t, watch, api.EventState)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	wantErr(t, "Next", second(watch.Next(short)), context.DeadlineExceeded)
	lease := mustAcquire(t, client, lock)
	nextOf(t, watch, api.EventGranted)
	check(t, lease.Release(ctx))
	nextOf(t, watch, api.EventReleased)
	wantEnd(t, watch, end, context.Canceled)
	watch, err = client.Watch(await.Context(t), lock)
	check(t, err)
	wantEnd(t, watch, watch.Close, lockclient.ErrClosed)
	watch, err = client.Watch(await.Context(t), lock)
	check(t, err)
	wantEnd(t, watch, client.Close, lockclient.ErrClosed)
}

// wantEnd ends a watch while a reader waits, and expects the reader's error.
func wantEnd(t *testing.T, watch *lockclient.Watch[lockclient.Event], end func(), want error) {
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

// A stream is opened again after its end, a cut, or an error, with the ID of its last event.
func TestStreamsReconnect(t *testing.T) {
	t.Parallel()
	turn, after := 0, []string{}
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.Header.Get("Last-Event-ID"))
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
		_, _ = fmt.Fprintf(w, "retry: 1\n: hello\n\nid: %d\nevent: granted\ndata: {\"fencing_token\":%d}\n\n", turn, turn)
		if turn == 2 {
			_, _ = fmt.Fprint(w, "event: end\ndata: {\"reason\":\"shutdown\"}\n\nid: 99\nevent: granted\ndata: {}\n\n")
			return
		}
		_, _ = fmt.Fprint(w, "id: 98\nevent: granted\ndata: {\"fenc")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	watch, err := newClient(t, url).Watch(t.Context(), "a")
	check(t, err)
	defer watch.Close()
	var got []int64
	for event, err := range watch.All(await.Context(t)) {
		if err != nil {
			wantErr(t, "the last Next", err, lockclient.ErrForbidden)
			break
		}
		got = append(got, event.Change.FencingToken)
	}
	if fmt.Sprint(got) != "[1 2 5]" || fmt.Sprintf("%q", after) != `["" "1" "2" "2" "2" "5"]` {
		t.Errorf("saw the events %v after %q, expected 1, 2 and 5", got, after)
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
