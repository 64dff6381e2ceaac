package openapi

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	openAPI     = "../../../../gateway/openapi.yaml"
	wirePackage = "../../../../lockclient/api"
)

// read reads openapi.yaml once.
var read = sync.OnceValues(func() (text []byte, err error) { return os.ReadFile(openAPI) })

// parse parses it once.
var parse = sync.OnceValues(func() (*Description, error) {
	text, err := read()
	if err != nil {
		return nil, err
	}
	return Read(text)
})

// must returns a result that has no error.
func must[T any](t testing.TB, get func() (T, error)) T {
	t.Helper()
	result, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// document is the text of openapi.yaml, and described what it says.
func document(t testing.TB) []byte        { return must(t, read) }
func described(t testing.TB) *Description { return must(t, parse) }

func validated(t *testing.T, text []byte) (*Description, error) {
	t.Helper()
	description, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return description, description.document.Validate(context.Background(),
		openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(),
		openapi3.EnableSchemaPatternValidation())
}

// openapi.yaml is valid, and each operation has an operationId of its own.
func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	description, err := validated(t, document(t))
	if err != nil {
		t.Fatal(err)
	}
	identified := map[string]bool{}
	for _, path := range description.paths {
		for method, operation := range path.item.Operations() {
			if operation.OperationID == "" || identified[operation.OperationID] {
				t.Errorf("%s %s: operationId %q is missing or used twice", method, path.template, operation.OperationID)
			}
			identified[operation.OperationID] = true
		}
	}
}

// The validation includes the examples.
func TestOpenAPIExamplesAreValidated(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]string{
		{"fencing_token: 34, sequence: 2, replayed: false", "fencing_token: 34, sequence: 2, repeated: false"},
		// a WriteResult
		{"code: token_stale, retryable: false", "code: token_stale, retryable: true"},
		{"{owner_id: worker-1}", "{owner: worker-1}"},
	} {
		text := bytes.Replace(document(t), []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(text, document(t)) {
			t.Fatalf("openapi.yaml does not have %q", change[0])
		}
		if _, err := validated(t, text); err == nil {
			t.Errorf("the document is valid with %q", change[1])
		}
	}
}

var codeRow = regexp.MustCompile("(?m)^\\| (\\d{3}) \\| `(\\w+)` \\|")

// The table of codes in docs/api.md has the statuses and codes of openapi.yaml.
func TestOpenAPICodesAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	described := described(t)
	page, err := os.ReadFile("../../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range codeRow.FindAllStringSubmatch(string(page), -1) {
		documented[row[1]+" "+row[2]] = true
	}
	answered := map[string]bool{}
	collect := func(status string, response *openapi3.ResponseRef) {
		if content := response.Value.Content[api.ProblemContentType]; content != nil {
			for _, code := range codesOf(content.Schema) {
				answered[status+" "+code] = true
			}
		}
	}
	for _, path := range described.paths {
		for _, operation := range path.item.Operations() {
			for status, response := range operation.Responses.Map() {
				collect(status, response)
			}
		}
	}
	collect(strconv.Itoa(http.StatusNotFound), described.document.Components.Responses["NoSuchPath"])
	collect(strconv.Itoa(http.StatusMethodNotAllowed), described.document.Components.Responses["MethodNotAllowed"])
	collect(strconv.Itoa(http.StatusTooManyRequests), described.document.Components.Responses["RateLimited"])
	collect(strconv.Itoa(http.StatusMisdirectedRequest), described.document.Components.Responses["Misdirected"])
	if !maps.Equal(documented, answered) {
		t.Errorf("docs/api.md has\n%s\nopenapi.yaml\n%s", lines(documented), lines(answered))
	}
}

// codesOf returns the codes that a schema admits.
func codesOf(schema *openapi3.SchemaRef) []string {
	var codes []string
	if code := schema.Value.Properties["code"]; code != nil {
		for _, value := range code.Value.Enum {
			codes = append(codes, value.(string)) //nolint:forcetypeassert // codes are strings
		}
	}
	for _, part := range slices.Concat(schema.Value.AllOf, schema.Value.OneOf) {
		codes = append(codes, codesOf(part)...)
	}
	return codes
}

// The examples of streams match their description.
func TestOpenAPIExamplesOfEvents(t *testing.T) {
	t.Parallel()
	described := described(t)
	examples := 0
	for _, path := range described.paths {
		for _, operation := range path.item.Operations() {
			response := operation.Responses.Status(http.StatusOK)
			if response == nil || response.Value.Content[eventStream] == nil {
				continue
			}
			example, _ := response.Value.Content[eventStream].Example.(string)
			if err := described.checkEvents(exchange{status: http.StatusOK, body: []byte(example)}, response); err != nil {
				t.Errorf("%s: %v", path.template, err)
			}
			if !bytes.HasSuffix([]byte(example), []byte("\n\n")) {
				t.Errorf("%s: the last event of the example %q is not complete", path.template, example)
			}
			examples++
		}
	}
	if examples != 3 {
		t.Errorf("openapi.yaml has %d examples of streams, want 3", examples)
	}
}

// enum returns the values of a schema.
func (d *Description) enum(schema string) (values []string) {
	for _, value := range d.document.Components.Schemas[schema].Value.Enum {
		values = append(values, fmt.Sprint(value))
	}
	return values
}

// Every code and reason of the API has a kind, and the kinds are those of the API.
func TestKindsOfRejections(t *testing.T) {
	t.Parallel()
	causes := []store.RejectionCause{}
	for _, code := range described(t).enum("RejectionCode") {
		causes = append(causes, store.RejectionCause{Verdict: store.Verdict(code)})
	}
	for _, reason := range described(t).enum("StaleReason") {
		causes = append(causes, store.RejectionCause{Verdict: store.VerdictTokenStale, Reason: reason})
	}
	kinds := []string{}
	for _, cause := range causes {
		if !cause.IsKnown() {
			t.Errorf("%s has no kind", cause)
		}
		kinds = append(kinds, string(cause.Kind()))
	}
	slices.Sort(kinds)
	want := described(t).enum("RejectionKind")
	slices.Sort(want)
	if got := slices.Compact(kinds); !slices.Equal(got, want) || len(want) != len(store.RejectionKinds) {
		t.Errorf("the codes and reasons have the kinds %q, openapi.yaml has %q", got, want)
	}
}
