//go:build unix

package docs_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// step is a command of a document, as bash runs it, with the output that the document shows.
type step struct {
	block  block
	files  map[string]string // what the command needs: names and contents
	script string
	output string // "" if the document shows none: then the command must succeed
	prints bool   // it must print something, whatever it is
}

var (
	psqlPrompt = regexp.MustCompile(`^\w+[=-][*!]?[>#] ?`)
	cat        = regexp.MustCompile(`^cat ([\w./-]+)$`)
)

// stepsOf returns the steps of a block. next is the block immediately after it, or nil: after a program, a text is what
// the program prints.
func stepsOf(b block, number int, next *block) []step {
	name := fmt.Sprintf("block-%d", number)
	program := func(extension, text, command string) []step {
		file := name + extension
		s := step{block: b, files: map[string]string{file: text}, script: strings.ReplaceAll(command, "FILE", file)}
		if next != nil && next.language == "text" {
			s.output = next.text
		}
		return []step{s}
	}
	switch b.language {
	case "console":
		if psqlPrompt.MatchString(b.text) {
			commands, output := split(b.text, psqlPrompt)
			steps := program(".sql", strings.Join(commands, "\n")+"\n", "stdbuf -o0 "+psql+" < FILE")
			steps[0].output = strings.Join(output, "")
			return steps
		}
		return consoleSteps(b)
	case "sh":
		return program(".sh", b.text, ". ./FILE")
	case "sql":
		if next != nil && next.language == "text" { // psql continues after errors
			return program(".sql", b.text, "stdbuf -o0 "+psql+" -qAt < FILE")
		}
		return program(".sql", b.text, psql+" -v ON_ERROR_STOP=1 < FILE")
	case "go":
		return program(".go", b.text, `(program=$PWD/FILE; [ -f go.mod ] || cd "$CLONE" && go run "$program")`)
	}
	return nil
}

// texts are the languages of blocks that are no commands: what programs print, HTTP, configuration, and code for other
// programs than those that run here.
var texts = []string{"", "text", "yaml", "hcl", "lua", "ts"}

// psql shows what it shows at a terminal, without the lines CONTEXT of errors.
const psql = "psql -X -v SHOW_CONTEXT=never"

// consoleSteps returns a step for each prompt of a session. `cat FILE` makes the file that it shows.
func consoleSteps(b block) []step {
	commands, outputs := split(b.text, regexp.MustCompile(`^\$ `))
	steps := make([]step, 0, len(commands))
	for i, command := range commands {
		if shown := cat.FindStringSubmatch(command); shown != nil {
			steps = append(steps, step{block: b, files: map[string]string{shown[1]: strings.TrimRight(outputs[i], "\n") + "\n"},
				script: "true"})
			continue
		}
		steps = append(steps, step{block: b, script: command + "\n", output: outputs[i]})
	}
	return steps
}

// split returns the commands of a session, and what each prints. A command continues after a backslash, and at a psql
// prompt until the next one.
func split(text string, prompt *regexp.Regexp) (commands, outputs []string) {
	continues := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		command := prompt.ReplaceAllString(line, "")
		switch {
		case continues:
			commands[len(commands)-1] += "\n" + command
		case prompt.MatchString(line):
			commands, outputs = append(commands, command), append(outputs, "")
		case len(outputs) > 0:
			outputs[len(outputs)-1] += line + "\n"
			continue
		}
		continues = strings.HasSuffix(command, `\`)
	}
	return commands, outputs
}

// isProgram is whether a block of Go is a whole program. Others are fragments, which are only parsed.
func isProgram(text string) bool { return strings.HasPrefix(text, "package main\n") }

// checkFragment parses declarations or statements of Go in which … marks what is left out.
func checkFragment(t *testing.T, b block) {
	t.Helper()
	text := strings.ReplaceAll(b.text, "…", "")
	parse := func(before, after string) error {
		_, err := parser.ParseFile(token.NewFileSet(), b.file, "package p\n"+before+text+after, parser.SkipObjectResolution)
		return err
	}
	err := parse("func _() {\n", "\n}")
	if err != nil && parse("", "") != nil && parse("var _ = T{\n", "\n}") != nil {
		t.Errorf("%s:%d: the fragment of Go can't be parsed: %v", b.file, b.line, err)
	}
}

// TestTenMinutes pastes all of docs/sql/ten-minutes.md into the psql that the page starts, which prints what it shows.
func TestTenMinutes(t *testing.T) {
	t.Parallel()
	const page = "docs/sql/ten-minutes.md"
	blocks := blocksOf(t, page)
	pasted, shown := "", "…\n"
	for _, b := range blocks {
		switch b.language {
		case "sql":
			pasted += b.text
		case "text":
			shown += b.text
		}
	}
	session(t, page, []step{{
		block: blocks[0],
		files: map[string]string{"start.sh": blocks[0].text, "pasted.sql": pasted},
		script: psql + ` -q -o /dev/null -c "select setval('fence.tokens', 33)"
			psql() { stdbuf -o0 psql -X "$@"; }
			. ./start.sh < pasted.sql`,
		output: shown,
	}})
}

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
