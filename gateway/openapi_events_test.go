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
)

const eventStreamType = "text/event-stream"

func init() { openapi3filter.RegisterBodyDecoder(eventStreamType, openapi3filter.PlainBodyDecoder) }

// streamEvent is one event of a stream.
type streamEvent struct {
	id   string // "": none
	kind string
	data string
}

// parseEvents decodes events strictly: each field once, in the gateway's order. It skips comments, and IDs without an
// event. The rest is an event that is not complete.
func parseEvents(text string) (events []streamEvent, rest string, err error) {
	for {
		block, after, whole := strings.Cut(text, "\n\n")
		if !whole {
			return events, text, nil
		}
		text = after
		if strings.HasPrefix(block, ":") && !strings.Contains(block, "\n") {
			continue
		}
		var event streamEvent
		lines := strings.Split(block, "\n")
		if id, found := strings.CutPrefix(lines[0], "id: "); found {
			event.id, lines = id, lines[1:]
			if len(lines) == 0 {
				continue
			}
		}
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "event: ") || !strings.HasPrefix(lines[1], "data: ") {
			return events, text, fmt.Errorf("this is no event: %q", block)
		}
		event.kind, event.data = strings.TrimPrefix(lines[0], "event: "), strings.TrimPrefix(lines[1], "data: ")
		events = append(events, event)
	}
}

// checkEvents validates the events of a stream against the schemas of x-events.
func (d *description) checkEvents(e exchange, response *openapi3.ResponseRef) error {
	content := response.Value.Content[eventStreamType]
	if content == nil || e.status != http.StatusOK {
		return nil
	}
	kinds, ok := content.Extensions["x-events"].(map[string]any)
	if !ok {
		return errors.New("x-events is missing")
	}
	events, _, err := parseEvents(string(e.body))
	for i, event := range events {
		name, known := kinds[event.kind].(string)
		schema := d.document.Components.Schemas[name]
		if !known || schema == nil {
			return fmt.Errorf("the event %q is not described", event.kind)
		}
		var data any
		if err := json.Unmarshal([]byte(event.data), &data); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if err := schema.Value.VisitJSON(data, openapi3.MultiErrors()); err != nil {
			return fmt.Errorf("event %d differs from the schema %s: %w", i, name, err)
		}
		if last := event.kind == "end"; last != (event.id == "") || last && i < len(events)-1 {
			return fmt.Errorf("event %d: the id is %q, which belongs to every event but the end", i, event.id)
		}
	}
	return err
}

func TestOpenAPICheckOfEvents(t *testing.T) {
	t.Parallel()
	const watch = "GET /v1/locks/job-42/watch"
	const header = "Content-Type: text/event-stream\nCache-Control: no-store\nX-Accel-Buffering: no"
	const granted = "id: 3\nevent: granted\ndata: " +
		`{"lock":"job-42","at":"2026-01-02T09:00:00.000Z","owner_id":"w","fencing_token":3}` + "\n\n"
	replace := func(old, with string) string { return strings.Replace(granted, old, with, 1) }
	const end = "event: end\ndata: {\"reason\":\"shutdown\"}\n\n"
	for _, e := range []fakeExchange{
		{name: "as described", body: ":\n\n" + granted + ":\n\n" + end},
		{name: "nothing yet", body: ""},
		{name: "cut off", body: granted + "id: 4\nev"},
		{name: "event not described", body: replace("event: granted", "event: grunted"),
			failure: `"grunted" is not described`},
		{name: "event of another stream", body: replace("event: granted", "event: leader"),
			failure: `"leader" is not described`},
		{name: "field not described", body: replace("owner_id", "owner"), failure: "owner"},
		{name: "field missing", body: replace(`"lock":"job-42",`, ""), failure: "lock"},
		{name: "no id", body: replace("id: 3\n", ""), failure: "belongs to every event"},
		{name: "an id of the end", body: "id: 4\n" + end, failure: "belongs to every event"},
		{name: "more after the end", body: end + granted, failure: "belongs to every event"},
		{name: "data of two lines", body: replace(",", ",\ndata: "), failure: "this is no event"},
		{name: "no JSON", body: replace("{", ""), failure: "event 0"},
	} {
		e.request, e.status, e.header = watch, http.StatusOK, header
		t.Run(e.name, e.run)
	}
	other := strings.Replace(header, "X-Accel", "X-Excel", 1)
	fakeExchange{request: watch, header: other, failure: "X-Excel-Buffering"}.run(t)
}

// The examples of streams match their description.
func TestOpenAPIExamplesOfEvents(t *testing.T) {
	t.Parallel()
	described, err := described()
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, path := range described.paths {
		for _, operation := range path.item.Operations() {
			response := operation.Responses.Status(http.StatusOK)
			if response == nil || response.Value.Content[eventStreamType] == nil {
				continue
			}
			example, _ := response.Value.Content[eventStreamType].Example.(string)
			if err := described.checkEvents(exchange{status: http.StatusOK, body: []byte(example)}, response); err != nil {
				t.Errorf("%s: %v", path.template, err)
			}
			if !bytes.HasSuffix([]byte(example), []byte("\n\n")) {
				t.Errorf("%s: the last event of the example %q is not complete", path.template, example)
			}
			examples++
		}
	}
	if examples != 4 {
		t.Errorf("openapi.yaml has %d examples of streams, want 4", examples)
	}
}
