package lockclient_test

import (
	"context"
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
