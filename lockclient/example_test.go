package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
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
	if errors.Is(err, lockclient.ErrLeaseLost) {
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
	for event, err := range watch.All(ctx) {
		if err != nil {
			panic(err)
		}
		switch event.Kind {
		case api.EventState:
			fmt.Println("it is", event.State.State)
			if lease, err = client.Acquire(ctx, "example/watched"); err != nil {
				panic(err)
			}
		case api.EventGranted:
			fmt.Println("granted to", event.Change.OwnerID)
			return
		}
	}
	// Output:
	// it is free
	// granted to worker-1
}
