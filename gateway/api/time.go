package api

import "time"

// Time is a time.Time that is written as RFC 3339 UTC with milliseconds, and read from any RFC 3339 time.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z"

// AppendText appends the time as RFC 3339 UTC with milliseconds.
func (t Time) AppendText(out []byte) ([]byte, error) {
	return t.UTC().AppendFormat(out, timeLayout), nil
}

// MarshalText writes the time as RFC 3339 UTC with milliseconds.
func (t Time) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// MarshalJSON writes the time as a JSON string, RFC 3339 UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"` + timeLayout + `"`)), nil
}
