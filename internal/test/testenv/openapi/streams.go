package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
)

const eventStream = "text/event-stream"

// The bodies of these types are checked below, or not at all.
func init() {
	for _, kind := range []string{
		eventStream, "text/html", "text/javascript", "text/css", "image/svg+xml",
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
		last := event.Kind == "end"
		if (last || event.Kind == "state") != (event.ID == "") || last && i < len(events)-1 {
			return fmt.Errorf("event %d: the id is %q, which belongs to every event but a state and the end", i, event.ID)
		}
	}
	return err
}
