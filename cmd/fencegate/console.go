package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/document"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient"
)

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

// principalHeading is that of a column which is shown only if a row has something in it.
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

// fail writes an error, if there is one, and returns the exit code.
func (c *console) fail(err error) int {
	var ran *runError
	switch {
	case err == nil:
	case errors.As(err, &ran) && ran.err == nil:
	case isUsage(err):
		_, _ = fmt.Fprintf(c.err, "fencegate: %s\n%s\n", printableLines(err), usageOf(c.command))
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
