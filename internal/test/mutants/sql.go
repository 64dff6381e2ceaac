package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// lexeme is a piece of SQL that is neither space nor comment.
type lexeme struct {
	text       string // words in lower case
	start, end int    // in the source
	depth      int    // how many brackets are open around it; a bracket has the depth of what is around it
}

var (
	sqlToken = regexp.MustCompile(`^(?:` + strings.Join([]string{
		`\s+`, `--[^\n]*`,
		`\$\w*\$`,             // the begin or the end of a body, which is read as the rest is
		`"(?:[^"]|"")*"`,      // a quoted name
		`[eE]?'(?:[^']|'')*'`, // a string
		`%(?:\d+\$)?[sIL]\b`,  // a place of format()
		`[\pL_][\pL\d_$]*`, `\d[\d.]*`, `\$\d+`,
		`:=`, `=>`, `::`, "[-+*/<>=~!@#%^&|?`]+",
		`(?s:.)`,
	}, "|") + `)`)
	skipped = regexp.MustCompile(`^(?:\s|--)`)
	dollars = regexp.MustCompile(`^\$\w*\$$`)
)

// tokens reads a statement that makes a function or a view. Brackets are parentheses, "case … end", and bodies in
// dollars, also those of dynamic SQL.
func tokens(source string) (found []lexeme) {
	var open []string // brackets: what closes each
	for at := 0; at < len(source); {
		text := sqlToken.FindString(source[at:])
		if skipped.MatchString(text) {
			at += len(text)
			continue
		}
		t := lexeme{text: strings.ToLower(text), start: at, end: at + len(text)}
		at = t.end
		before := ""
		if len(found) > 0 {
			before = found[len(found)-1].text
		}
		closes := ""
		switch {
		case t.text == "distinct" && (before == "is" || before == "not"), t.text == "from" && before == "is distinct":
			t.text = "is " + t.text // of "is distinct from", which is an operator
		case (t.text == "left" || t.text == "right") && strings.HasPrefix(source[at:], "("):
			t.text += "()" // not of a join
		case t.text == "(" || t.text == "[":
			closes = map[string]string{"(": ")", "[": "]"}[t.text]
		case t.text == "case" && before != "end":
			closes = "end"
		case dollars.MatchString(t.text) && !slices.Contains(open, t.text):
			closes = t.text
		}
		if n := len(open); closes == "" && n > 0 && open[n-1] == t.text && !endsBlock(t.text, source[t.end:]) {
			open = open[:n-1]
		}
		t.depth = len(open)
		if closes != "" {
			open = append(open, closes)
		}
		found = append(found, t)
	}
	return found
}

var blockEnd = regexp.MustCompile(`^\s+(?:if|loop)\b`)

// endsBlock is whether the word is the end of an "if" or a "loop", which are no brackets.
func endsBlock(word, rest string) bool { return word == "end" && blockEnd.MatchString(rest) }

// mutant is a function that was broken in one place.
type mutant struct {
	function string
	start    int    // of the place, in the source of the function
	change   string // what was done, on one line; the same text for the same change
	source   string // of the broken function
}

// rules finds the places of a source that the rules break.
type rules struct {
	source string
	tokens []lexeme
	found  []mutant
}

// mutants breaks a function, or a view, in one place after the other.
func mutants(function, source string) []mutant {
	r := &rules{source: source, tokens: tokens(source)}
	for i := r.body(); i < len(r.tokens); i++ {
		switch r.tokens[i].text {
		case "and", "or":
			r.condition(i)
		case "=", "<>", "<", "<=", ">", ">=":
			r.comparison(i)
		case "not":
			if r.text(i+1) != "null" || r.text(i-1) == "is" {
				r.drop(i, i+1)
			}
		case "is":
			if r.text(i+1) == "is distinct" {
				r.replace(i, i+1, "is not", "flip "+r.around(i))
			}
		case "for":
			r.lock(i)
		case "skip":
			if r.text(i+1) == "locked" {
				r.drop(i, i+2)
			}
		case "order":
			r.order(i)
		case "perform":
			if r.text(i+1) == "fence" && r.text(i+2) == "." {
				end := r.until(i, func(word string) bool { return word == ";" })
				r.replace(i, end, "null", "drop "+r.words(i, end))
			}
		}
	}
	times := map[string]int{}
	for i, m := range r.found {
		r.found[i].function = function
		if times[m.change]++; times[m.change] > 1 {
			r.found[i].change += fmt.Sprintf(" #%d", times[m.change])
		}
	}
	return r.found
}

// body returns where the body begins: what is before are arguments and settings.
func (r *rules) body() int {
	for i, t := range r.tokens {
		if t.depth == 0 && (dollars.MatchString(t.text) || t.text == "return" || t.text == "begin" ||
			t.text == "as" && !dollars.MatchString(r.text(i+1))) {
			return i
		}
	}
	return len(r.tokens)
}

func (r *rules) text(i int) string {
	if i < 0 || i >= len(r.tokens) {
		return ""
	}
	return r.tokens[i].text
}

// words is the text of tokens, without comments and line breaks.
func (r *rules) words(from, to int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		t := r.tokens[i]
		if i > from && t.start > r.tokens[i-1].end {
			text.WriteByte(' ')
		}
		text.WriteString(r.source[t.start:t.end])
	}
	return strings.Join(strings.Fields(text.String()), " ")
}

// replace makes a mutant that has a text in the place of tokens.
func (r *rules) replace(from, to int, text, change string) {
	start, end := r.tokens[from].start, r.tokens[to-1].end
	if text := []rune(change); len(text) > 160 {
		change = string(text[:100]) + " … " + string(text[len(text)-50:])
	}
	r.found = append(r.found, mutant{start: start, change: change, source: r.source[:start] + text + r.source[end:]})
}

func (r *rules) drop(from, to int) {
	change := "drop " + r.words(from, to)
	if to-from < 3 {
		change += " in " + r.around(from)
	}
	r.replace(from, to, "", change)
}

// until returns the first token of the same depth, from i+1 on, of which is holds, or that closes the bracket around.
func (r *rules) until(i int, is func(word string) bool) int {
	depth := r.tokens[i].depth
	for i++; i < len(r.tokens); i++ {
		t := r.tokens[i]
		if t.depth < depth || t.depth == depth && is(t.text) {
			break
		}
	}
	return i
}

// since is until, backwards: it returns the token after.
func (r *rules) since(i int, is func(word string) bool) int {
	depth := r.tokens[i].depth
	for i--; i >= 0; i-- {
		t := r.tokens[i]
		if t.depth < depth || t.depth == depth && is(t.text) {
			break
		}
	}
	return i + 1
}

// Words that a condition ends before, or begins after.
var boundaries = strings.Fields(`
	; , := => where on if elsif when then else having while return select distinct returning as from set
	loop order group limit offset for union except intersect join left right full inner cross window into using begin
	declare perform or`)

func boundary(word string) bool { return slices.Contains(boundaries, word) }

func conjunct(word string) bool { return word == "and" || boundary(word) }

// condition drops what is at the right of an "and" or "or"; what is at the left, if it is the first of its chain.
func (r *rules) condition(i int) {
	is := conjunct
	if r.text(i) == "or" {
		is = boundary
	}
	begin, end := r.since(i, is), r.until(i, is)
	if slices.ContainsFunc(r.tokens[begin:i], func(t lexeme) bool {
		return t.text == "between" && t.depth == r.tokens[i].depth
	}) {
		return // the "and" is that of "between"
	}
	r.drop(i, end)
	if r.text(begin-1) != r.text(i) || r.tokens[begin-1].depth != r.tokens[i].depth {
		r.drop(begin, i+1)
	}
}

var flips = map[string][]string{
	"=": {"<>"}, "<>": {"="}, "<": {"<=", ">"}, "<=": {"<"}, ">": {">=", "<"}, ">=": {">"},
}

// clock is what reads the clock, and the variables that keep what it said. No two readings are of the same microsecond, so
// the product works as well on whichever side of a comparison the equal ones are.
var clock = regexp.MustCompile(`\bclock_timestamp\(\)|\bv_(?:now|begun|began|before|end)\b`)

func (r *rules) comparison(i int) {
	if r.assigns(i) {
		return
	}
	from, to := i, i+1
	if r.text(i-1) == "." { // operator(pg_catalog.=)
		from, to = i-4, i+2
	}
	begin, end := r.since(from, conjunct), r.until(from, conjunct)
	for _, flipped := range flips[r.text(i)] {
		if strings.TrimSuffix(flipped, "=") == strings.TrimSuffix(r.text(i), "=") && clock.MatchString(r.words(begin, end)) {
			continue
		}
		r.replace(i, i+1, flipped, "flip "+r.words(begin, from)+" ["+r.text(i)+" → "+flipped+"] "+r.words(to, end))
	}
}

// assigns is whether an equals sign is that of an assignment in "set", "using" of an exception, or "get diagnostics".
func (r *rules) assigns(i int) bool {
	depth := r.tokens[i].depth
	before := func(i int, words ...string) (int, string) {
		i = r.since(i, func(word string) bool { return slices.Contains(words, word) }) - 1
		if i < 0 || r.tokens[i].depth != depth {
			return i, ""
		}
		return i, r.text(i)
	}
	begins := []string{"set", "using", "diagnostics", ",", "where", "from", ";"}
	at, word := before(i, append(begins, "=")...)
	for word == "," {
		at, word = before(at, begins...)
	}
	return r.text(i) == "=" && slices.Contains(begins[:3], word)
}

// around is the condition that a token is in.
func (r *rules) around(i int) string {
	return r.words(r.since(i, conjunct), r.until(i, conjunct))
}

// lock drops the lock of a query.
func (r *rules) lock(i int) {
	var end int
	switch {
	case r.text(i+1) == "update" || r.text(i+1) == "share":
		end = i + 2
	case r.text(i+1) == "key":
		end = i + 3
	case r.text(i+1) == "no" && r.text(i+2) == "key":
		end = i + 4
	default:
		return
	}
	if r.text(end) == "of" {
		end += 2
	}
	if r.text(end) == "skip" {
		end += 2
	}
	r.replace(i, end, "", "drop "+r.words(i, end)+" of "+r.words(r.since(i, boundary), i))
}

// order drops the order of a query, or of an aggregate.
func (r *rules) order(i int) {
	if r.text(i+1) != "by" {
		return
	}
	end := r.until(i, func(word string) bool {
		return slices.Contains(strings.Fields("; limit offset for union loop on into returning rows range"), word)
	})
	r.replace(i, end, "", "drop "+r.words(i, end))
}
