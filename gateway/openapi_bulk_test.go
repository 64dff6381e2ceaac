package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/fencegate/fencegate/gateway/api"
)

func init() {
	openapi3filter.RegisterBodyDecoder(api.BulkContentType, openapi3filter.PlainBodyDecoder)
}

// checkLines validates the lines of a stream of writes against the schemas of x-lines, and the admitted lines of the
// request.
func (d *description) checkLines(e exchange, response *openapi3.ResponseRef) error {
	content := response.Value.Content[api.BulkContentType]
	if content == nil || e.status != http.StatusOK {
		return nil
	}
	var next int64 = 1
	ended := false
	sent := bytes.Split(e.requestBody, []byte("\n"))
	for line := range bytes.Lines(e.body) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			return nil // the answer was cut off
		}
		var verdict struct {
			api.BulkVerdict
			api.BulkEnd
		}
		if err := json.Unmarshal(line, &verdict); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if err := d.checkLine(content, line); err != nil {
			return err
		}
		switch {
		case ended:
			return fmt.Errorf("after the end came %s", line)
		case verdict.End != "":
			ended = true
			continue
		case verdict.Line < next:
			return fmt.Errorf("line %d comes after line %d", verdict.Line, next-1)
		}
		next = verdict.Line + 1
		if verdict.Code == "" && verdict.Line <= int64(len(sent)) {
			if err := d.checkAdmitted(sent[verdict.Line-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLine validates a line of the answer.
func (d *description) checkLine(content *openapi3.MediaType, line []byte) error {
	names, ok := content.Extensions["x-lines"].([]any)
	if !ok {
		return errors.New("x-lines is missing")
	}
	var document any
	if err := json.Unmarshal(line, &document); err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		schema := d.document.Components.Schemas[fmt.Sprint(name)]
		if schema == nil {
			return fmt.Errorf("the schema %v is missing", name)
		}
		err := schema.Value.VisitJSON(document, openapi3.MultiErrors())
		if err == nil {
			return nil
		}
		failures = append(failures, fmt.Errorf("%v: %w", name, err))
	}
	return fmt.Errorf("the line %s is not described: %w", line, errors.Join(failures...))
}

// checkAdmitted validates a line of the request that was admitted.
func (d *description) checkAdmitted(line []byte) error {
	var document any
	if err := json.Unmarshal(line, &document); err != nil {
		return fmt.Errorf("the admitted line %q: %w", line, err)
	}
	schema := "BulkWrite"
	if fields, _ := document.(map[string]any); fields["ops"] != nil {
		schema = "TransactionRequest"
	}
	if err := d.document.Components.Schemas[schema].Value.VisitJSON(document, openapi3.MultiErrors()); err != nil {
		return fmt.Errorf("an admitted line differs from the description: %.300s: %w", line, err)
	}
	return nil
}

func TestOpenAPICheckOfLines(t *testing.T) {
	t.Parallel()
	const writes = "POST /v1/writes"
	const header = "Content-Type: application/x-ndjson\nCache-Control: no-store\nX-Accel-Buffering: no"
	const line = `{"op":"put","resource":"a","key":"b","fencing_token":1,"sequence":1,"value":1}` + "\n"
	const admitted = `{"line":1,"status":201,"version":1,"fencing_token":1,"sequence":1,"replayed":false}` + "\n"
	const refusedLine = `{"line":2,"status":404,"code":"not_found","retryable":false,"detail":"There is none."}` + "\n"
	const end = `{"end":"complete","next_line":3}` + "\n"
	replace := strings.ReplaceAll
	for _, e := range []fakeExchange{
		{name: "as described", requestBody: line + line, body: admitted + refusedLine + end},
		{name: "cut off", requestBody: line, body: admitted + `{"line":2,`},
		{name: "nothing", requestBody: line, body: ""},
		{name: "out of order", requestBody: line + line, body: refusedLine + admitted, failure: "line 1 comes after line 2"},
		{name: "twice", requestBody: line + line, body: admitted + admitted, failure: "line 1 comes after line 1"},
		{name: "after the end", requestBody: line + line, body: admitted + end + refusedLine, failure: "after the end"},
		{name: "field not described", requestBody: line, body: replace(admitted, "version", "varsion"), failure: "varsion"},
		{name: "field missing", requestBody: line, body: replace(admitted, `"version":1,`, ""), failure: "version"},
		{name: "status of another code", requestBody: line, body: replace(refusedLine, "404", "412"),
			failure: "is not described"},
		{name: "half admitted", requestBody: line, body: replace(refusedLine, `"retryable"`, `"fencing_token":1,"retryable"`),
			failure: "is not described"},
		{name: "end not described", requestBody: line, body: replace(end, "complete", "over"), failure: "is not described"},
		{name: "bad line admitted", requestBody: replace(line, `"put"`, `"pat"`), body: admitted,
			failure: "an admitted line"},
	} {
		e.requestBody = " " + e.requestBody // otherwise fakeExchange regards it as a JSON body
		e.request, e.status, e.header, e.requestHeader = writes, http.StatusOK, header, "Content-Type: application/x-ndjson"
		t.Run(e.name, e.run)
	}
}

// The examples of lines match their description.
func TestOpenAPIExamplesOfLines(t *testing.T) {
	t.Parallel()
	described, err := described()
	if err != nil {
		t.Fatal(err)
	}
	operation := described.document.Paths.Find("/v1/writes").Post
	response := operation.Responses.Status(http.StatusOK)
	sent, _ := operation.RequestBody.Value.Content[api.BulkContentType].Example.(string)
	answer, _ := response.Value.Content[api.BulkContentType].Example.(string)
	if sent == "" || answer == "" {
		t.Fatal("openapi.yaml has no example of a stream of writes")
	}
	example := exchange{status: http.StatusOK, requestBody: []byte(sent), body: []byte(answer)}
	if err := described.checkLines(example, response); err != nil {
		t.Error(err)
	}
}
