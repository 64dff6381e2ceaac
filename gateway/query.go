package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/store"
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

// parameters reads the parameters of a URL one by one. It keeps the first error, so that its user checks err once.
type parameters struct {
	url.Values

	err error
}

func readParameters(r *http.Request, known ...string) parameters {
	values, err := query(r, known...)
	return parameters{values, err}
}

func (p *parameters) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// integer reads an integer. The message names its limits, which the store checks.
func (p *parameters) integer(parameter string, least, most, absent int) int {
	text := p.Get(parameter)
	if text == "" {
		return absent
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		p.fail(invalid("%s must be an integer from %d to %d.", parameter, least, most))
	}
	return number
}

// choice reads a parameter with two possible values and reports whether it is the second. Absent means the first.
func (p *parameters) choice(parameter, first, second string) bool {
	switch p.Get(parameter) {
	case "", first:
		return false
	case second:
		return true
	}
	p.fail(invalid("%s must be %s or %s.", parameter, first, second))
	return false
}

// name reads the name of a lock or resource; "" if it is absent.
func (p *parameters) name(parameter string) store.Name {
	text := p.Get(parameter)
	if text == "" {
		return ""
	}
	name, err := parseName(parameter, text)
	p.fail(err)
	return name
}

// time reads a time; the zero time if it is absent.
func (p *parameters) time(parameter string) time.Time {
	text := p.Get(parameter)
	if text == "" {
		return time.Time{}
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.fail(invalid("%s must be a time like 2026-01-02T15:04:05Z.", parameter))
	}
	return instant
}

func knownParameters(known []string) string {
	if len(known) == 0 {
		return "this URL takes none"
	}
	return "the known ones are " + strings.Join(known, ", ")
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
