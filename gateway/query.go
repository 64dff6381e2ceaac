package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// query reads the parameters of a URL. It refuses unknown and repeated ones: a misspelt option must not be ignored.
func query(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil //nolint:nilnil // a nil url.Values reads as one without parameters
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("The query of the URL is malformed.")
	}
	for name, given := range values {
		if !slices.Contains(known, name) {
			return nil, invalid("There is no parameter %q; %s.", clip(name), knownParameters(known))
		}
		if len(given) > 1 {
			return nil, invalid("The parameter %s is there %d times.", name, len(given))
		}
	}
	return values, nil
}

func knownParameters(known []string) string {
	if len(known) == 0 {
		return "this URL takes none"
	}
	return "the known ones are " + strings.Join(known, ", ")
}

// parseTime reads a time; the zero time for an empty text.
func parseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, invalid("%s must be a time like 2026-01-02T15:04:05Z.", field)
	}
	return instant, nil
}

// milliseconds reads a duration in milliseconds; nil is 0.
func milliseconds(field string, ms *int64, least, most time.Duration) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	if *ms < least.Milliseconds() || *ms > most.Milliseconds() {
		return 0, invalid("%s is %d, it must be %d to %d.", field, *ms, least.Milliseconds(), most.Milliseconds())
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// clip keeps a message short, whatever was sent.
func clip(text string) string {
	const shown = 100
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + "…"
}
