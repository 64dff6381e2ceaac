package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/fencegate/fencegate/lockclient/api"
)

const eventStream = "text/event-stream"

// The bodies of these types are checked below, or not at all.
func init() {
	for _, kind := range []string{
		eventStream, api.BulkContentType, "text/html", "text/javascript", "text/css", "image/svg+xml",
	} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.PlainBodyDecoder)
	}
}

// Event is one event of a stream.
type Event struct {
	ID   string // "": none
	Kind string
	Data string
}

// ParseEvents decodes events strictly: each field once, in the gateway's order. It skips comments, and IDs without an
// event. The rest is an event that is not complete.
func ParseEvents(text string) (events []Event, rest string, err error) {
	for {
		block, after, whole := strings.Cut(text, "\n\n")
		if !whole {
			return events, text, nil
		}
		text = after
		if strings.HasPrefix(block, ":") && !strings.Contains(block, "\n") {
			continue
		}
		var event Event
		lines := strings.Split(block, "\n")
		if id, found := strings.CutPrefix(lines[0], "id: "); found {
			event.ID, lines = id, lines[1:]
			if len(lines) == 0 {
				continue
			}
		}
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "event: ") || !strings.HasPrefix(lines[1], "data: ") {
			return events, text, fmt.Errorf("this is no event: %q", block)
		}
		event.Kind, event.Data = strings.TrimPrefix(lines[0], "event: "), strings.TrimPrefix(lines[1], "data: ")
		events = append(events, event)
	}
}

// checkEvents validates the events of a stream against the schemas of x-events.
func (d *Description) checkEvents(e exchange, response *openapi3.ResponseRef) error {
	content := response.Value.Content[eventStream]
	if content == nil || e.status != http.StatusOK {
		return nil
	}
	kinds, ok := content.Extensions["x-events"].(map[string]any)
	if !ok {
		return errors.New("x-events is missing")
	}
	events, _, err := ParseEvents(string(e.body))
	for i, event := range events {
		name, known := kinds[event.Kind].(string)
		schema := d.document.Components.Schemas[name]
		if !known || schema == nil {
			return fmt.Errorf("the event %q is not described", event.Kind)
		}
		var data any
		if err := json.Unmarshal([]byte(event.Data), &data); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if err := schema.Value.VisitJSON(data, openapi3.MultiErrors()); err != nil {
			return fmt.Errorf("event %d differs from the schema %s: %w", i, name, err)
		}
		if last := event.Kind == "end"; last != (event.ID == "") || last && i < len(events)-1 {
			return fmt.Errorf("event %d: the id is %q, which belongs to every event but the end", i, event.ID)
		}
	}
	return err
}

// checkLines validates the lines of a stream of writes against the schemas of x-lines, and the admitted lines of the
// request.
func (d *Description) checkLines(e exchange, response *openapi3.ResponseRef) error {
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
func (d *Description) checkLine(content *openapi3.MediaType, line []byte) error {
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
func (d *Description) checkAdmitted(line []byte) error {
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
