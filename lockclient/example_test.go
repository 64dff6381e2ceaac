package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// exampleClient returns a client of the gateway that the examples use.
func exampleClient(owner string) *lockclient.Client {
	client, err := lockclient.New(gatewayURL, lockclient.WithOwner(owner))
	if err != nil {
		panic(err)
	}
	return client
}

func ExampleNew() {
	// The first gateway doesn't run. The client continues at the next one.
	client, err := lockclient.New("http://127.0.0.1:1",
		lockclient.WithFailover(gatewayURL),
		lockclient.WithOwner("worker-1"),
		lockclient.WithAnswerTimeout(10*time.Second),
		lockclient.WithUserAgent("shop/7"),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	lease, err := client.Acquire(context.Background(), "example/new")
	if err != nil {
		panic(err)
	}
	defer lease.ReleaseOnce()
	fmt.Println(lease.Owner(), "holds", lease.Name())
	// Output: worker-1 holds example/new
}

func ExampleClient_Do() {
	client := exampleClient("worker-1")
	defer client.Close()

	err := client.Do(context.Background(), "example/do", func(ctx context.Context, lease *lockclient.Lease) error {
		// ctx ends when the lease is lost: stop unfenced work then.
		_, err := lease.Put(ctx, "state", []byte("done"), lockclient.WithContentType("text/plain"))
		return err
	})
	if errors.Is(err, lockclient.ErrNotHolder) {
		fmt.Println("another holder may have worked at the same time")
	}
	record, err := client.API().Get(context.Background(), "example/do", "state")
	fmt.Println(string(record.Value), err)
	// Output: done <nil>
}

func ExampleClient_Acquire() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Acquire(ctx, "example/acquired",
		lockclient.WithTTL(30*time.Second),
		lockclient.WithMetadata(map[string]string{"pod": "a-1"}),
	)
	if err != nil {
		panic(err)
	}
	defer lease.ReleaseOnce()

	_, err = client.Acquire(ctx, "example/acquired", lockclient.WithLeaseOwner("worker-2"))
	if errors.Is(err, lockclient.ErrLockHeld) {
		fmt.Println("held by", lockclient.ProblemOf(err).Holder.OwnerID)
	}
	// Output: held by worker-1
}

func ExampleClient_Transact() {
	client := exampleClient("clerk")
	defer client.Close()
	ctx := context.Background()

	from, err := client.Acquire(ctx, "example/accounts/1")
	if err != nil {
		panic(err)
	}
	defer from.ReleaseOnce()
	to, err := client.Acquire(ctx, "example/accounts/2")
	if err != nil {
		panic(err)
	}
	defer to.ReleaseOnce()

	debit := api.Op{Op: "put", Resource: from.Name(), Key: "balance", Value: []byte("90")}
	credit := api.Op{Op: "put", Resource: to.Name(), Key: "balance", Value: []byte("110")}
	result, err := client.Transact(ctx, []*lockclient.Lease{from, to}, debit, credit)
	fmt.Println(len(result.Results), err)
	// Output: 2 <nil>
}

func ExampleClient_Watch() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()

	watch, err := client.Watch(ctx, "example/watched")
	if err != nil {
		panic(err)
	}
	defer watch.Close()

	var lease *lockclient.Lease
	defer func() { lease.ReleaseOnce() }()
	for state, err := range watch.All(ctx) {
		if err != nil {
			panic(err)
		}
		if state.State == "held" {
			fmt.Println("held by", state.Holders[0].OwnerID)
			return
		}
		fmt.Println("it is", state.State)
		if lease, err = client.Acquire(ctx, "example/watched"); err != nil {
			panic(err)
		}
	}
	// Output:
	// it is free
	// held by worker-1
}

// exampleLease acquires a lock.
func exampleLease(client *lockclient.Client, lock string, opts ...lockclient.LeaseOption) *lockclient.Lease {
	lease, err := client.Acquire(context.Background(), lock, opts...)
	if err != nil {
		panic(err)
	}
	return lease
}

func ExampleLease_Put() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/put")
	defer lease.ReleaseOnce()

	first, err := lease.Put(ctx, "state", []byte("half"), lockclient.IfAbsent())
	if err != nil {
		panic(err)
	}
	second, err := lease.Put(ctx, "state", []byte("done"), lockclient.IfVersion(first.Version))
	if err != nil {
		panic(err)
	}
	_, err = lease.Put(ctx, "state", []byte("lost"), lockclient.IfVersion(first.Version))
	fmt.Println(*first.Sequence, *second.Sequence, errors.Is(err, lockclient.ErrVersionMismatch))
	// Output: 1 2 true
}

func ExampleLease_Put_stale() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	zombie := exampleLease(client, "example/stale", lockclient.WithTTL(time.Second), lockclient.WithoutHeartbeat())

	// It sends no renewals, as if it were paused for longer than its TTL, and another lease is granted.
	holder, err := client.AcquireWithRetry(
		ctx,
		"example/stale",
		lockclient.RetryPolicy{Attempts: 100},
		lockclient.WithLeaseOwner("worker-2"),
	)
	if err != nil {
		panic(err)
	}
	defer holder.ReleaseOnce()

	_, err = zombie.Put(ctx, "state", []byte("late"))
	fmt.Println(errors.Is(err, lockclient.ErrNotHolder), errors.Is(zombie.Err(), lockclient.ErrNotHolder))
	// Output: true true
}

func ExampleClient_NewSession() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()

	session, err := client.NewSession(ctx, lockclient.WithTTL(10*time.Second))
	if err != nil {
		panic(err)
	}
	var leases []*lockclient.Lease
	for _, lock := range []string{"example/session/1", "example/session/2"} {
		lease, err := session.Acquire(ctx, lock)
		if err != nil {
			panic(err)
		}
		leases = append(leases, lease)
	}
	if err := session.Close(ctx); err != nil {
		panic(err)
	}
	fmt.Println(leases[0].Valid(), leases[1].Valid())
	// Output: false false
}

func ExampleClient_Elect() {
	client := exampleClient("node-1")
	defer client.Close()
	ctx := context.Background()

	term, err := client.Elect(ctx, "example/election", lockclient.WithMetadata(map[string]string{"url": "http://node-1"}))
	if err != nil {
		panic(err)
	}
	defer term.ReleaseOnce()
	election, err := client.API().Lock(ctx, "example/election")
	if err != nil {
		panic(err)
	}
	leader := election.Holders[0]
	fmt.Println(leader.OwnerID, string(leader.Metadata), leader.FencingToken == term.FencingToken())
	// Output: node-1 {"url":"http://node-1"} true
}

func ExampleLease_Writes() {
	client := exampleClient("worker-1")
	defer client.Close()
	lease := exampleLease(client, "example/writes")
	defer lease.ReleaseOnce()

	writes := []api.BulkWrite{{Op: "put", Key: "a", Value: []byte(`{"n":1}`)}, {Op: "delete", Key: "none"}}
	for _, outcome := range lease.Writes(context.Background(), writes) {
		fmt.Println(outcome.Result.Version, errors.Is(outcome.Err, lockclient.ErrNotFound))
	}
	// Output:
	// 1 false
	// 0 true
}
