package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

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
	fmt.Println(errors.Is(err, lockclient.ErrTokenStale), errors.Is(zombie.Err(), lockclient.ErrLeaseLost))
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

func ExampleClient_Campaign() {
	client := exampleClient("node-1")
	defer client.Close()
	ctx := context.Background()

	term, err := client.Campaign(ctx, "example/election", map[string]string{"url": "http://node-1"})
	if err != nil {
		panic(err)
	}
	defer term.ReleaseOnce()
	leader, err := client.API().Election(ctx, "example/election")
	if err != nil {
		panic(err)
	}
	fmt.Println(leader.Leader, string(leader.Value), leader.Term == term.FencingToken())
	// Output: node-1 {"url":"http://node-1"} true
}
