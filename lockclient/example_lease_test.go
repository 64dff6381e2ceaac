package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
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
	zombie := exampleLease(client, "example/stale", lockclient.WithTTL(time.Second))

	// It is paused for longer than its TTL, and another lease is granted.
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

func ExampleLease_PutJSON() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/json")
	defer lease.ReleaseOnce()

	if _, err := lease.PutJSON(ctx, "state", map[string]int{"done": 3}); err != nil {
		panic(err)
	}
	record, err := client.API().Get(ctx, "example/json", "state")
	fmt.Println(string(record.Value), record.ContentType, err)
	// Output: {"done":3} application/json <nil>
}

func ExampleLease_Delete() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/delete")
	defer lease.ReleaseOnce()

	_, err := lease.Delete(ctx, "state")
	fmt.Println(errors.Is(err, lockclient.ErrNotFound))
	// Output: true
}

func ExampleLease_Transaction() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/transaction")
	defer lease.ReleaseOnce()
	if _, err := lease.Put(ctx, "draft", []byte("text")); err != nil {
		panic(err)
	}

	result, err := lease.Transaction(ctx,
		lockclient.PutOp("final", []byte("text"), "text/plain"),
		lockclient.DeleteOp("draft"),
	)
	fmt.Println(len(result.Results), err)
	// Output: 2 <nil>
}

func ExampleOnResource() {
	client := exampleClient("worker-1")
	defer client.Close()
	lease := exampleLease(client, "example/tree", lockclient.Subtree())
	defer lease.ReleaseOnce()

	result, err := lease.Put(context.Background(), "state", []byte("done"), lockclient.OnResource("example/tree/leaf"))
	fmt.Println(result.Resource, err)
	// Output: example/tree/leaf <nil>
}

func ExampleLease_StartHeartbeat() {
	client := exampleClient("worker-1")
	defer client.Close()
	lease := exampleLease(client, "example/heartbeat", lockclient.WithTTL(3*time.Second))
	defer lease.ReleaseOnce()

	lease.StartHeartbeat(lockclient.OnHeartbeatError(func(err error) { log.Print(err) }))
	time.Sleep(4 * time.Second) // longer than the TTL
	fmt.Println(lease.Err(), lease.HeartbeatErr())
	// Output: <nil> <nil>
}

func ExampleLease_Context() {
	client := exampleClient("worker-1")
	defer client.Close()
	lease := exampleLease(client, "example/context", lockclient.WithTTL(time.Second))
	defer lease.ReleaseOnce()

	// It is not renewed.
	<-lease.Context().Done()
	fmt.Println(errors.Is(context.Cause(lease.Context()), lockclient.ErrLeaseLost))
	// Output: true
}

func ExampleLease_Renew() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/renewed", lockclient.WithTTL(time.Minute))
	defer lease.ReleaseOnce()

	if err := lease.Renew(ctx); err != nil {
		panic(err)
	}
	err := lease.RenewWithTTL(ctx, time.Hour)
	fmt.Println(err, lease.ExpiresIn() > 50*time.Minute)
	// Output: <nil> true
}

func ExampleLease_Release() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/released")
	defer lease.ReleaseOnce() // whatever happens before the release

	err := lease.Release(ctx)
	fmt.Println(err, errors.Is(lease.Err(), lockclient.ErrLeaseReleased))
	// Output: <nil> true
}

func ExampleLease_ReleaseOnce() {
	client := exampleClient("worker-1")
	defer client.Close()
	func() {
		lease := exampleLease(client, "example/once")
		defer lease.ReleaseOnce()
	}()
	lock, err := client.API().Lock(context.Background(), "example/once")
	fmt.Println(lock.State, err)
	// Output: free <nil>
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

	leadership, err := client.Campaign(ctx, "example/election", map[string]string{"url": "http://node-1"})
	if err != nil {
		panic(err)
	}
	defer leadership.ResignOnce()
	leader, err := client.Leader(ctx, "example/election")
	if err != nil {
		panic(err)
	}
	fmt.Println(leader.Leader, string(leader.Value), leader.Term == leadership.Term())
	// Output: node-1 {"url":"http://node-1"} true
}

func ExampleClient_Observe() {
	client := exampleClient("node-1")
	defer client.Close()
	ctx := context.Background()

	watch, err := client.Observe(ctx, "example/observed")
	if err != nil {
		panic(err)
	}
	defer watch.Close()
	var leadership *lockclient.Leadership
	defer func() { leadership.ResignOnce() }()
	for election, err := range watch.All(ctx) {
		if err != nil {
			panic(err)
		}
		if election.Leader != "" {
			fmt.Println("the leader is", election.Leader)
			return
		}
		if leadership, err = client.Campaign(ctx, "example/observed", nil); err != nil {
			panic(err)
		}
	}
	// Output: the leader is node-1
}
