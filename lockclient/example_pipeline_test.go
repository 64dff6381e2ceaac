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
	// Close waits for all verdicts, and returns the first error.
	if err := pipeline.Close(); err != nil {
		panic(err)
	}
	record, err := client.API().Get(ctx, "example/pipeline", "rows/999")
	fmt.Println(record.Version, *record.Token.Sequence, err)
	// Output: 1000 1000 <nil>
}

// examplePipeline starts a pipeline.
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
	// All writes have their verdicts, so the lease's other writes continue.
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

	lines := fmt.Sprintf(
		`{"op":"put","resource":"example/writes","key":"a","fencing_token":%[1]d,"sequence":1,"value":{"n":1}}
{"op":"delete","resource":"example/writes","key":"none","fencing_token":%[1]d,"sequence":2}
`,
		lease.FencingToken(),
	)
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

func ExampleClient_BulkWriter() {
	client := exampleClient("worker-1")
	defer client.Close()
	ctx := context.Background()
	lease := exampleLease(client, "example/bulk")
	defer lease.ReleaseOnce()

	writer, err := client.BulkWriter(ctx, lockclient.OnResult(func(result lockclient.BulkResult) {
		fmt.Println(result.Index, result.Verdict.Status, result.Err)
	}))
	if err != nil {
		panic(err)
	}
	for i := range 2 {
		line := fmt.Appendf(
			nil,
			`{"op":"put","resource":"example/bulk","key":"k","value":%d,"fencing_token":%d,"sequence":%d}`,
			i,
			lease.FencingToken(),
			i+1,
		)
		if err := writer.Send(ctx, lockclient.BulkLine{JSON: line}); err != nil {
			panic(err)
		}
	}
	if err := writer.Close(); err != nil {
		panic(err)
	}
	// Output:
	// 0 201 <nil>
	// 1 200 <nil>
}
