package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// nextOf reads until an event of one of the kinds comes, and returns it.
func nextOf(t *testing.T, watch *lockclient.Watch, kind string) lockclient.Event {
	t.Helper()
	ctx := patient(t)
	for {
		event, err := watch.Next(ctx)
		check(t, err)
		if event.Kind == kind {
			return event
		}
	}
}

func TestWatches(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	defer watch.Close()
	state := nextOf(t, watch, api.EventState)
	if state.State == nil || state.State.State != "free" || state.State.Missed || state.Change != nil {
		t.Errorf("the state is %+v", state)
	}
	lease, err := client.Acquire(ctx, lock)
	check(t, err)
	granted := nextOf(t, watch, api.EventGranted)
	if granted.ID <= state.ID || granted.Change.FencingToken != lease.FencingToken() || granted.Change.OwnerID != client.Owner() || granted.State != nil {
		t.Errorf("granted: %+v, %+v", granted, granted.Change)
	}
	check(t, lease.Renew(ctx))
	nextOf(t, watch, api.EventRenewed)
	check(t, lease.Release(ctx))
	nextOf(t, watch, api.EventReleased)
	_, err = lease.Put(ctx, "k", nil)
	if !errors.Is(err, lockclient.ErrTokenStale) {
		t.Error(err)
	}
	if rejected := nextOf(t, watch, api.EventRejected); rejected.Change.Code != api.CodeTokenStale || rejected.Change.Key != "k" {
		t.Errorf("rejected: %+v", rejected.Change)
	}

	resumed, err := client.Watch(ctx, lock, lockclient.AfterEvent(granted.ID))
	check(t, err)
	defer resumed.Close()
	first, err := resumed.Next(ctx)
	if err != nil || (first.Kind != api.EventRenewed && first.Kind != api.EventState) {
		t.Errorf("after %d: %+v, %v", granted.ID, first, err)
	}
}

// A watch that was cut off goes on after the last event that it has seen, at the other gateway.
func TestAWatchOutlivesItsGateway(t *testing.T) {
	first, second, client := pair(t)
	ctx := patient(t)
	direct := newClient(t, second.URL)
	watch, err := client.Watch(ctx, "job")
	check(t, err)
	defer watch.Close()
	nextOf(t, watch, api.EventState)
	var last int64
	for round := range 10 {
		lease, err := direct.Acquire(ctx, "job")
		check(t, err)
		if round == 5 {
			first.Kill()
		}
		check(t, lease.Release(ctx))
	}
	for tokens := int64(0); tokens < 10; {
		event, err := watch.Next(ctx)
		check(t, err)
		if event.ID < last {
			t.Errorf("event %d after %d", event.ID, last)
		}
		last = event.ID
		switch event.Kind {
		case api.EventGranted:
			tokens++
			if event.Change.FencingToken < tokens {
				t.Errorf("token %d, the grant number %d", event.Change.FencingToken, tokens)
			}
		case api.EventState:
			if !event.State.Missed {
				t.Errorf("a state in the middle, and nothing missed: %+v", event.State)
			}
			return // a gap is told, which is all that is promised
		}
	}
}

// TestWatchesEnd checks that a reader may give up one wait and read on, and that a watch ends with its ctx, its
// Close, and its client.
func TestWatchesEnd(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	life, end := context.WithCancel(ctx)
	watch, err := client.Watch(life, lock)
	check(t, err)
	nextOf(t, watch, api.EventState)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := watch.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	lease, err := client.Acquire(ctx, lock)
	check(t, err)
	nextOf(t, watch, api.EventGranted)
	check(t, lease.Release(ctx))
	nextOf(t, watch, api.EventReleased)
	endOf(t, watch, func(*lockclient.Watch) { end() }, context.Canceled)
	watch, err = client.Watch(ctx, lock)
	check(t, err)
	endOf(t, watch, func(w *lockclient.Watch) { w.Close() }, lockclient.ErrClosed)
	watch, err = client.Watch(ctx, lock)
	check(t, err)
	endOf(t, watch, func(*lockclient.Watch) { client.Close() }, lockclient.ErrClosed)
}

func endOf(t *testing.T, watch *lockclient.Watch, end func(*lockclient.Watch), want error) {
	t.Helper()
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if _, err := watch.Next(context.Background()); err != nil {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
				return
			}
		}
	})
	end(watch)
	reading.Wait()
	watch.Close()
	watch.Close()
}

// A stream is opened again after its end, a cut, an answer that is none, with the id of the last event.
func TestStreamsAreOpenedAgain(t *testing.T) {
	turn, after := 0, []string{}
	url, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
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
	client := newClient(t, url)
	watch, err := client.Watch(t.Context(), "a")
	check(t, err)
	defer watch.Close()
	var got []int64
	for event, err := range watch.All(patient(t)) {
		if err != nil {
			if !errors.Is(err, lockclient.ErrForbidden) {
				t.Errorf("got %v", err)
			}
			break
		}
		got = append(got, event.Change.FencingToken)
	}
	if fmt.Sprint(got) != "[1 2 5]" || fmt.Sprintf("%q", after) != `["" "1" "2" "2" "2" "5"]` {
		t.Errorf("the events are %v, after %q", got, after)
	}
}

func TestRejectionsPageByPage(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	for i := range 5 {
		_, err := client.API().Put(ctx, lock, fmt.Sprint("k", i), lockclient.Write{Token: numbered(1<<50+int64(i), 1)})
		if !errors.Is(err, lockclient.ErrTokenUnknown) {
			t.Fatal(err)
		}
	}
	which := lockclient.RejectionsQuery{Resource: lock, Limit: 2}
	eventually(t, func() bool {
		seen := map[string]bool{}
		for rejection, err := range client.Rejections(ctx, which) {
			check(t, err)
			seen[rejection.Key] = true
		}
		return len(seen) == 5
	})
	for _, err := range client.Rejections(ctx, which) {
		check(t, err)
		break // leaves nothing behind
	}
	for _, err := range client.Rejections(ctx, lockclient.RejectionsQuery{Limit: -1}) {
		if !errors.Is(err, lockclient.ErrInvalidRequest) {
			t.Errorf("got %v", err)
		}
	}
}
