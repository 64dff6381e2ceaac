package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/document"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// outputFormat is the form of answers.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatJSON  outputFormat = "json"
	formatYAML  outputFormat = "yaml"
	formatEnv   outputFormat = "env"
)

// UnmarshalText reads the flag. "text" is what the table was called before.
func (f *outputFormat) UnmarshalText(text []byte) error { //nolint:unparam // of encoding.TextUnmarshaler
	if *f = outputFormat(text); *f == "text" {
		*f = formatTable
	}
	return nil
}

// outputFlag is the form in which a command answers.
type outputFlag struct {
	Output outputFormat `group:"connection" help:"table; json: a document on a line, as the API has it; yaml: the same documents; env: assignments for the eval of a shell. In json and yaml, errors are problem documents." enum:"table,json,yaml,env" default:"table" short:"o" placeholder:"FORMAT"`
}

// AfterApply is called by the parser.
func (f outputFlag) AfterApply(con *console) error {
	con.format = f.Output
	return nil
}

// documents reports whether answers are documents. If not, they are text for people.
func (f outputFormat) documents() bool { return f == formatJSON || f == formatYAML || f == formatEnv }

// problems reports whether errors are documents, too.
func (f outputFormat) problems() bool { return f == formatJSON || f == formatYAML }

// many returns an error for a command that has many answers: each would replace the variables of the one before.
func (f outputFormat) many() error {
	if f == formatEnv {
		return usagef("--output env is for a single answer: take json or yaml")
	}
	return nil
}

// answerPrefix begins the variables of fields that no command reads. Those of flags would change later commands.
const answerPrefix = "FENCEGATE_ANSWER_"

// grantVariables are the variables of a granted lease or session: those that "fencegate run" sets, which later commands
// read as their flags. Other answers, such as the state of a lock, have the tokens of others.
func grantVariables(document any) map[string]string {
	switch document.(type) {
	case api.Lease:
		return map[string]string{
			"lock": variableLock, "fencing_token": variableToken, "lease_id": variableLeaseID, "owner_id": variableOwnerID,
		}
	case api.Session:
		return map[string]string{"session_id": variableSessionID, "owner_id": variableOwnerID}
	}
	return nil
}

// endedVariables are those that mean nothing after an answer.
func endedVariables(document any) []string {
	switch document.(type) {
	case api.Released:
		return []string{variableLock, variableToken, variableLeaseID}
	case api.SessionEnded:
		return []string{variableSessionID}
	}
	return nil
}

// variableOf returns the names of the variables for the fields of a document.
func variableOf(document any) func(field string) string {
	granted := grantVariables(document)
	return func(field string) string {
		if variable, ok := granted[field]; ok {
			return variable
		}
		return answerPrefix + strings.ToUpper(field)
	}
}

// streams are what a command reads from and writes to.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// console writes answers and errors to streams, in the form that --output selects.
type console struct {
	streams
	format outputFormat
	// command is what the command line selected, as far as it could be read; nil before it is read.
	command *kong.Node
	// written counts the documents.
	written int
}

// field is a line of text output.
type field struct{ name, value string }

// show writes an answer: the document, or its fields.
func (c *console) show(answer any, fields []field) error {
	if c.format.documents() {
		return c.document(answer)
	}
	rows := make([][]string, len(fields))
	for i, line := range fields {
		rows[i] = []string{line.name, line.value}
	}
	return writeTable(c.out, rows)
}

// document writes a document in the format, which is not that of a table.
func (c *console) document(answer any) error {
	c.written++
	switch c.format {
	case formatEnv:
		if ended := endedVariables(answer); ended != nil {
			if _, err := fmt.Fprintln(c.out, "unset", strings.Join(ended, " ")); err != nil {
				return err
			}
		}
		return document.Shell(c.out, answer, variableOf(answer))
	case formatYAML:
		if c.written > 1 {
			if _, err := fmt.Fprintln(c.out, "---"); err != nil {
				return err
			}
		}
		return document.YAML(c.out, answer)
	}
	return document.JSON(c.out, answer)
}

// list writes many answers: a document for each, or a table under a heading.
func list[T any](c *console, heading []string, items []T, row func(T) []string) error {
	rows := [][]string{heading}
	for _, item := range items {
		if c.format.documents() {
			if err := c.document(item); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, row(item))
	}
	if c.format.documents() {
		return nil
	}
	return writeTable(c.out, withPrincipals(rows))
}

// answerList makes a call to the gateway, and lists what it answers.
func answerList[T any](
	ctx context.Context, con *console, flags clientFlags, heading []string, row func(T) []string,
	call func(context.Context, calls) ([]T, error),
) error {
	if err := con.format.many(); err != nil {
		return err
	}
	return flags.call(ctx, func(ctx context.Context, gateway calls) error {
		items, err := call(ctx, gateway)
		if err != nil {
			return err
		}
		return list(con, heading, items, row)
	})
}

// principalHeading heads a column that is hidden when empty.
const principalHeading = "PRINCIPAL"

func withPrincipals(rows [][]string) [][]string {
	column := slices.Index(rows[0], principalHeading)
	if column < 0 || slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "" }) {
		return rows
	}
	for i := range rows {
		rows[i] = slices.Delete(rows[i], column, column+1)
	}
	return rows
}

// note writes a remark for the user, beside the answer.
func (c *console) note(format string, args ...any) {
	if !c.format.problems() {
		_, _ = fmt.Fprintf(c.err, "fencegate: "+format+"\n", args...)
	}
}

// findings shows what the checks found, and the advice. It returns an error if something is wrong.
func (c *console) findings(findings []checks.Finding) error {
	err := list(c, []string{"STATE", "CHECK", "FOUND", "CURE"}, findings, func(f checks.Finding) []string {
		found, cure := f.Detail, f.Cure
		if f.Subject != "" {
			found = f.Subject + ": " + found
		}
		if f.State == checks.OK {
			cure = ""
		}
		return []string{string(f.State), f.Check, found, cure}
	})
	if err != nil {
		return err
	}
	number, advised := map[checks.State]int{}, ""
	for _, f := range findings {
		number[f.State]++
		if f.Advice != "" && f.Check != advised && !c.format.documents() {
			advised = f.Check
			if _, err := fmt.Fprintf(c.out, "\n%s: %s\n", f.Check, f.Advice); err != nil {
				return err
			}
		}
	}
	summary := fmt.Sprintf("wrong: %d, warnings: %d, unknown: %d, ok: %d", number[checks.Wrong],
		number[checks.Suspicious], number[checks.Unknown], number[checks.OK])
	if number[checks.Wrong] > 0 {
		return errors.New(summary)
	}
	c.note("%s", summary)
	return nil
}

// fail writes an error, if there is one, and returns the exit code.
func (c *console) fail(err error) int {
	var ran *runError
	switch {
	case err == nil:
	case errors.As(err, &ran) && ran.err == nil:
	case isUsage(err):
		_, _ = fmt.Fprintf(c.err, "fencegate: %s\n%s\n", printableLines(plain(err)), usageOf(c.command))
	case c.format.problems():
		_ = c.problem(problemOf(err))
	default:
		_, _ = fmt.Fprintf(c.err, "fencegate: %s\n", printableLines(err))
		if next := hint(err); next != "" {
			_, _ = fmt.Fprintln(c.err, next)
		}
	}
	return exitCode(err)
}

// problemOf gives every failure the form of a problem. The codes "foreign_answer" (what answered is not fencegate) and
// "failed" (this program failed) are none of the API's.
func problemOf(err error) *api.Problem {
	var problem *api.Problem
	if errors.As(err, &problem) {
		return problem
	}
	code, title := api.Code("failed"), "Failed"
	if errors.Is(err, lockclient.ErrForeignAnswer) {
		code, title = "foreign_answer", "Not an answer of fencegate"
	}
	return &api.Problem{Type: "about:blank", Title: title, Status: 500, Code: code, Detail: err.Error()}
}

// problem writes a document to the errors.
func (c *console) problem(problem any) error {
	if c.format != formatYAML {
		return document.JSON(c.err, problem)
	}
	if _, err := fmt.Fprintln(c.err, "---"); err != nil {
		return err
	}
	return document.YAML(c.err, problem)
}

// writeTable aligns columns by spaces.
func writeTable(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable.Text(cell)
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(table, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// line writes the parts of something that happened.
func (c *console) line(parts []string) error {
	for i, part := range parts {
		parts[i] = printable.Text(part)
	}
	_, err := fmt.Fprintln(c.out, strings.Join(parts, "  "))
	return err
}

func printableLines(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = printable.Text(line)
	}
	return strings.Join(lines, "\n")
}

// pageMax is the most that the gateway gives at once.
const pageMax = 1000

// follow collects pages up to a limit. It requests one row more than that, to know whether there are more.
func follow[T any](
	limit int, next func(cursor string, limit int) ([]T, string, error),
) (items []T, more bool, err error) {
	if limit < 1 {
		return nil, false, usagef("--limit is %d, it must be positive", limit)
	}
	cursor := ""
	for {
		page, following, err := next(cursor, min(limit-len(items)+1, pageMax))
		if err != nil {
			return nil, false, err
		}
		items = append(items, page...)
		switch {
		case len(items) > limit:
			return items[:limit], true, nil
		case following == "" || len(page) == 0:
			return items, false, nil
		}
		cursor = following
	}
}

// listFlags are those of commands that list pages.
type listFlags struct {
	clientFlags

	Limit int `help:"The most to list." default:"100"`
}

// listPages lists pages up to the limit, and notes when there are more.
func listPages[T any](
	ctx context.Context, con *console, flags listFlags, heading []string, row func(T) []string,
	next func(ctx context.Context, gateway calls, cursor string, limit int) ([]T, string, error),
) error {
	return answerList(ctx, con, flags.clientFlags, heading, row, func(ctx context.Context, gateway calls) ([]T, error) {
		items, more, err := follow(flags.Limit, func(cursor string, limit int) ([]T, string, error) {
			return next(ctx, gateway, cursor, limit)
		})
		if more {
			con.note("there are more than %d; --limit lists more", flags.Limit)
		}
		return items, err
	})
}
