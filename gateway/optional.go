package gateway

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
)

// optional returns nil for the zero value: the field is absent then.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// optionalTime returns nil for the zero time.
func optionalTime(instant time.Time) *api.Time {
	if instant.IsZero() {
		return nil
	}
	return &api.Time{Time: instant}
}

// optionalMS returns milliseconds; nil for nil.
func optionalMS(duration *time.Duration) *int64 {
	if duration == nil {
		return nil
	}
	return new(duration.Milliseconds())
}

// optionalID returns "" for the zero ID.
func optionalID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// optionalJSON returns nil for null, which means the same as an absent field.
func optionalJSON(given json.RawMessage) json.RawMessage {
	if string(given) == "null" {
		return nil
	}
	return given
}
