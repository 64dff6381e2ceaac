package configfile

import (
	"net/url"
	"regexp"
	"strings"
)

// redacted stands for a password.
const redacted = "xxxxx"

// setting is a password among the settings of a connection: of libpq's keywords, or of a URL's query.
var setting = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)

// userinfo is a password before the host of a URL.
var userinfo = regexp.MustCompile(`(://[^/?#:]*:)[^/?#]*(@)`)

// redact replaces the passwords of a connection, and reports whether there were any.
func redact(text string) (string, bool) {
	if strings.Contains(text, "://") && strings.Contains(text, "@") {
		if _, err := url.Parse(text); err != nil {
			return redacted, true // nobody knows which part is the password
		}
	}
	shown := userinfo.ReplaceAllString(text, "${1}"+redacted+"${2}")
	shown = setting.ReplaceAllString(shown, "${1}"+redacted)
	return shown, shown != text
}
