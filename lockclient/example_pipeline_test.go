package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func ExampleLease_Pipeline() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline")
	defer lease.ReleaseOnce()

	pipeline, err := lease.Pipeline(ctx, lockclient.PipelineWindow(512))
	if err != nil {
		panic(err)
	}
	for i := range 1000 {
		if _, err := pipeline.Put(ctx, fmt.Sprint("rows/", i), []byte("…")); err != nil {
			panic(err)
		}
	}
	// The first error of any of them, when all have their verdicts.
	if err := pipeline.Close(); err != nil {
		panic(err)
	}
	record, err := client.API().Get(ctx, "example/pipeline", "rows/999")
	fmt.Println(record.Version, *record.Token.Sequence, err)
	// Output: 1000 1000 <nil>
}

func ExamplePipelineWindow() {
	client := exampleClient("worker-1")
	defer client.Close()
	lease := exampleLease(client, "example/pipeline/window")
	defer lease.ReleaseOnce()

	_, err := lease.Pipeline(context.Background(), lockclient.PipelineWindow(0))
	fmt.Println(err)
	// Output: pipeline: invalid_request: the window is 0, it must be 1 to 65536
}

// examplePipeline is one under a lease.
func examplePipeline(lease *lockclient.Lease) *lockclient.Pipeline {
	pipeline, err := lease.Pipeline(context.Background())
	if err != nil {
		panic(err)
	}
	return pipeline
}

func ExamplePipeline_Put() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/put")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)
	defer func() { _ = pipeline.Close() }()

	first, err := pipeline.Put(ctx, "state", []byte("half"))
	if err != nil {
		panic(err)
	}
	second, err := pipeline.Put(ctx, "state", []byte("done"), lockclient.IfVersion(7))
	if err != nil {
		panic(err)
	}
	result, err := first.Wait(ctx)
	fmt.Println(result.Version, err)
	_, err = second.Wait(ctx)
	fmt.Println(errors.Is(err, lockclient.ErrVersionMismatch))
	// Output:
	// 1 <nil>
	// true
}

func ExamplePipeline_PutJSON() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/json")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)

	if _, err := pipeline.PutJSON(ctx, "state", map[string]int{"done": 3}); err != nil {
		panic(err)
	}
	if err := pipeline.Close(); err != nil {
		panic(err)
	}
	record, err := client.API().Get(ctx, "example/pipeline/json", "state")
	fmt.Println(string(record.Value), err)
	// Output: {"done":3} <nil>
}

func ExamplePipeline_Delete() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/delete")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)

	if _, err := pipeline.Delete(ctx, "none"); err != nil {
		panic(err)
	}
	fmt.Println(errors.Is(pipeline.Close(), lockclient.ErrNotFound))
	// Output: true
}

func ExamplePipeline_Flush() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/flush")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)
	defer func() { _ = pipeline.Close() }()

	for range 10 {
		if _, err := pipeline.Put(ctx, "state", []byte("half")); err != nil {
			panic(err)
		}
	}
	if err := pipeline.Flush(ctx); err != nil {
		panic(err)
	}
	// Nothing is under way: the lease's other writes may go.
	result, err := lease.Put(ctx, "state", []byte("done"))
	fmt.Println(result.Version, err)
	// Output: 11 <nil>
}

func ExamplePipeline_Close() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/close")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)

	fmt.Println(pipeline.Close())
	_, err := pipeline.Put(ctx, "state", nil)
	fmt.Println(err)
	// Output:
	// <nil>
	// pipeline: invalid_request: the pipeline is closed
}

func ExamplePendingWrite_Wait() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/wait")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)
	defer func() { _ = pipeline.Close() }()

	write, err := pipeline.Put(ctx, "state", []byte("done"))
	if err != nil {
		panic(err)
	}
	result, err := write.Wait(ctx)
	fmt.Println(result.Key, write.Sequence(), err)
	// Output: state 1 <nil>
}

func ExamplePendingWrite_Done() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/pipeline/done")
	defer lease.ReleaseOnce()
	pipeline := examplePipeline(lease)
	defer func() { _ = pipeline.Close() }()

	write, err := pipeline.Put(ctx, "state", []byte("done"))
	if err != nil {
		panic(err)
	}
	select {
	case <-write.Done():
		fmt.Println("there is a verdict")
	case <-lease.Context().Done():
		fmt.Println("the lease is lost")
	}
	// Output: there is a verdict
}

func ExampleAPI_Writes() {
	client := exampleClient("worker-1")
	defer client.Close()
	lease := exampleLease(client, "example/writes")
	defer lease.ReleaseOnce()

	lines := fmt.Sprintf(`{"op":"put","resource":"example/writes","key":"a","fencing_token":%[1]d,"sequence":1,"value":{"n":1}}
{"op":"delete","resource":"example/writes","key":"none","fencing_token":%[1]d,"sequence":2}
`, lease.FencingToken())
	end, err := client.API().Writes(context.Background(), strings.NewReader(lines), func(verdict api.BulkVerdict) error {
		fmt.Println("line", verdict.Line, verdict.Status)
		return nil
	})
	fmt.Println(end.End, end.NextLine, err)
	// Output:
	// line 1 201
	// line 2 404
	// complete 3 <nil>
}
