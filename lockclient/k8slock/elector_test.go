package k8slock_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/lockclient/k8slock"
)

// long is a lease that no test waits out.
const long = 10 * time.Minute

// TestElections runs client-go's electors against one gateway.
func TestElections(t *testing.T) {
	url := startGateway(t)
	for name, test := range map[string]func(*testing.T, string){
		"record": testRecord, "lost term": testLostTerm, "orderly end": testRelease, "partition": testPartition,
		"ten candidates": testTenCandidates, "example": testExample,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, url) })
	}
}

// testRelease has a leader that ends orderly: the next one leads long before the lease would have expired.
func testRelease(t *testing.T, url string) {
	a, b := newCandidate(t, newClient(t, url), "a", long, nil), newCandidate(t, newClient(t, url), "b", long, nil)
	a.config.ReleaseOnCancel = true
	endA := a.run(t)
	first := a.leads(t)
	b.run(t)
	if leader := await.Receive(t, "b observes a leader", b.leaders); leader != "a" {
		t.Errorf("b observes %q, expected a", leader)
	}
	endA()
	a.stops(t)
	if second := b.leads(t); second.FencingToken() <= first.FencingToken() {
		t.Errorf("the second term is %d after %d", second.FencingToken(), first.FencingToken())
	}
	if leader := await.Receive(t, "b observes a leader", b.leaders); leader != "b" {
		t.Errorf("b observes %q, expected itself", leader)
	}
	_, err := first.Put(t.Context(), "state", []byte("late"))
	if err == nil {
		t.Error("a write of the term that was released was accepted")
	}
}

// testPartition cuts a leader off from the gateway: its lease ends before the next one leads. When it is back it is a
// candidate, and learns who leads.
func testPartition(t *testing.T, url string) {
	const ttl = 6 * time.Second
	cut := newFreezer()
	clientA := newClient(t, url, lockclient.WithHTTPClient(&http.Client{Transport: cut}))
	a := newCandidate(t, clientA, "a", ttl, nil)
	b := newCandidate(t, newClient(t, url), "b", ttl, func(context.Context, *k8slock.Lock) {
		if a.lock.Lease().Valid() {
			t.Error("b leads before a's lease has ended")
		}
	})
	a.run(t)
	first := a.leads(t)
	b.run(t)
	cut.freeze()
	a.stops(t)
	second := b.leads(t)
	cut.thaw()
	a.run(t)
	for leader := ""; leader != "b"; {
		leader = await.Receive(t, "a observes that b leads", a.leaders)
	}
	rejected(t, first, second)
}

// testTenCandidates has terms end in turn, by release and by death. The leaders' writes are accepted in the order of
// their terms.
func testTenCandidates(t *testing.T, url string) {
	var mu sync.Mutex
	var written []api.WriteResult
	work := func(ctx context.Context, lock *k8slock.Lock) {
		for lease := lock.Lease(); ; { // on, also when ctx has ended: only the fence stops it
			result, err := lease.Put(context.WithoutCancel(ctx), "state", []byte(lock.Identity()))
			if err != nil {
				return
			}
			mu.Lock()
			written = append(written, result)
			mu.Unlock()
		}
	}
	terms := map[int64]bool{}
	events := make(chan string, 1000)
	ends := map[string]func(){}
	for i := range 10 {
		c := newCandidate(t, newClient(t, url), fmt.Sprint("candidate-", i), 2*time.Second, work)
		c.config.ReleaseOnCancel = i%3 != 0
		c.events = events
		ends[c.lock.Identity()] = c.run(t)
	}
	observer := k8slock.New(newClient(t, url), t.Name(), "observer")
	for len(ends) > 0 {
		var leader string
		await.True(t, "a leader", func() bool {
			now, _, err := observer.Get(t.Context())
			leader = ""
			if err == nil {
				leader = now.HolderIdentity
			}
			return ends[leader] != nil
		})
		mu.Lock()
		before := len(written)
		mu.Unlock()
		await.True(t, "five writes of the leader", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(written) >= before+5
		})
		ends[leader]()
		delete(ends, leader)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(written, func(a, b api.WriteResult) int { return cmp.Compare(a.Version, b.Version) })
	for i, write := range written {
		terms[write.FencingToken] = true
		if i > 0 && write.FencingToken < written[i-1].FencingToken {
			t.Errorf("a write of term %d was accepted after one of %d", write.FencingToken, written[i-1].FencingToken)
		}
	}
	if len(terms) != 10 {
		t.Errorf("%d terms wrote, expected 10", len(terms))
	}
}

// rejected checks that the writes of the first term are rejected, and those of the second accepted.
func rejected(t *testing.T, first, second *lockclient.Lease) {
	t.Helper()
	if second.FencingToken() <= first.FencingToken() {
		t.Errorf("the second term is %d after %d", second.FencingToken(), first.FencingToken())
	}
	if _, err := first.Put(t.Context(), "state", []byte("late")); err == nil {
		t.Error("a write of the first term was accepted")
	}
	_, err := second.Put(t.Context(), "state", []byte("new"))
	check(t, err)
}

// breakTerm ends the term of the leader in the election of the test.
func breakTerm(t *testing.T, client *lockclient.Client) {
	t.Helper()
	_, err := admin.New(client).Break(t.Context(), t.Name(), api.BreakRequest{Reason: "a test"})
	check(t, err)
}
