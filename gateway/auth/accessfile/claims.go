package accessfile

import (
	"math"
	"strconv"
	"strings"
)

// Claims are what a token or a certificate says, as JSON: text, numbers, booleans, lists and objects.
type Claims map[string]any

// integerMax is the largest integer of which a JSON number has every digit.
const integerMax = 1 << 53

// texts returns the values of a claim: one, those of a list, or none. A name that begins with a slash is a JSON Pointer
// (RFC 6901) into nested claims.
func (c Claims) texts(name string) (texts []string) {
	value, ok := c.find(name)
	if !ok {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, element := range list {
		if text, ok := textOf(element); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// words returns the values of a claim, of which one value may have several, separated by spaces.
func (c Claims) words(name string) (words []string) {
	if value, _ := c.find(name); value != nil {
		if text, ok := value.(string); ok {
			return strings.Fields(text)
		}
	}
	return c.texts(name)
}

func (c Claims) find(name string) (value any, ok bool) {
	if !strings.HasPrefix(name, "/") {
		value, ok = c[name]
		return value, ok
	}
	value = map[string]any(c)
	for segment := range strings.SplitSeq(name[1:], "/") {
		object, isObject := value.(map[string]any)
		if !isObject {
			return nil, false
		}
		if value, ok = object[unescape.Replace(segment)]; !ok {
			return nil, false
		}
	}
	return value, true
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func textOf(value any) (text string, ok bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case bool:
		return strconv.FormatBool(value), true
	case float64: // two large integers could be read as the same number
		return strconv.FormatFloat(value, 'f', -1, 64), math.Abs(value) < integerMax
	}
	return "", false
}
