//go:build unix

package docs_test

import (
	"regexp"
	"strings"
)

var (
	blanks = regexp.MustCompile(`[ \t]+`)
	rulers = regexp.MustCompile(`-{3,}`)

	// variants is what differs at every run: in a document, and in what is printed.
	variants = []struct{ shown, printed string }{
		{uuid, uuid}, {timestamp, timestamp}, {`\b3[4-9]\b`, `(\d+)`}, {`…`, `.*?`},
	}
)

const (
	uuid      = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	timestamp = `\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00)?`
	token34   = 2 // among the variants
)

// output compares what commands print with what a document shows. IDs and times differ. So do the tokens, 34 to 39 in
// all documents: each represents the same token throughout a document. … matches any text, and alone on its line any
// lines. Widths of columns don't count.
type output struct{ tokens map[string]string }

func (o output) matches(shown, printed string) bool {
	expression, tokens := expressionOf(tidy(shown))
	found := expression.FindStringSubmatch(tidy(printed))
	if found == nil {
		return false
	}
	for i, token := range tokens {
		if known, ok := o.tokens[token]; ok && known != found[i+1] {
			return false
		}
		o.tokens[token] = found[i+1]
	}
	return true
}

// expressionOf returns what printed text must be like, with a group for each of the tokens.
func expressionOf(shown string) (expression *regexp.Regexp, tokens []string) {
	shownAs := make([]string, len(variants))
	for i, v := range variants {
		shownAs[i] = "(" + v.shown + ")"
	}
	variant, text, end := regexp.MustCompile(strings.Join(shownAs, "|")), "", 0
	for _, found := range variant.FindAllStringSubmatchIndex(shown, -1) {
		text += regexp.QuoteMeta(shown[end:found[0]])
		end = found[1]
		for i, v := range variants {
			if found[2*i+2] < 0 {
				continue
			}
			text += v.printed
			if i == token34 {
				tokens = append(tokens, shown[found[0]:end])
			}
		}
	}
	return regexp.MustCompile(`(?s)^` + text + regexp.QuoteMeta(shown[end:]) + `$`), tokens
}

// tidy removes what only aligns columns.
func tidy(text string) string {
	lines := strings.Split(rulers.ReplaceAllString(blanks.ReplaceAllString(text, " "), "---"), "\n")
	kept := lines[:0]
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
