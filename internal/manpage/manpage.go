// Package manpage writes the manual page of a program from its kong model, in the macros of man(7).
package manpage

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Write writes the page of a program with its commands, one after the other.
func Write(w io.Writer, root *kong.Node, version string) error {
	summary, about, _ := strings.Cut(root.Help, "\n")
	p := &page{}
	p.macro("TH", strings.ToUpper(root.Name), "1", "", root.Name+" "+version, "")
	p.text.WriteString(".ad l\n.nh\n") // a long flag would leave gaps in adjusted lines
	p.macro("SH", "NAME")
	p.line(root.Name + ` \- ` + escaped(strings.TrimSuffix(summary, ".")))
	p.macro("SH", "SYNOPSIS")
	p.macro("B", root.Name)
	p.line(`\fIcommand\fR [\fIflags\fR]`)
	p.macro("SH", "DESCRIPTION")
	p.verbatim(strings.TrimSpace(about))
	p.macro("SH", "COMMANDS")
	for _, command := range root.Leaves(true) {
		p.command(command)
	}
	_, err := io.WriteString(w, p.text.String())
	return err
}

// page is the text of a manual page.
type page struct{ text strings.Builder }

// line writes a line of text, which must be escaped.
func (p *page) line(text string) {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text // which would be a request
	}
	p.text.WriteString(text + "\n")
}

// macro writes a macro with its arguments.
func (p *page) macro(name string, arguments ...string) {
	p.text.WriteString("." + name)
	for _, argument := range arguments {
		p.text.WriteString(` "` + escaped(argument) + `"`)
	}
	p.text.WriteString("\n")
}

// paragraphs writes a text that lines may be filled of.
func (p *page) paragraphs(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			p.macro("PP")
		}
		if strings.Contains(paragraph, "\n") {
			p.verbatim(paragraph)
			continue
		}
		p.line(escaped(paragraph))
	}
}

// verbatim writes lines as they are.
func (p *page) verbatim(text string) {
	p.macro("nf")
	for line := range strings.Lines(text) {
		if line == "\n" {
			p.macro("sp")
			continue
		}
		p.line(escaped(strings.TrimSuffix(line, "\n")))
	}
	p.macro("fi")
}

func (p *page) command(command *kong.Node) {
	p.macro("SS", Usage(command))
	p.paragraphs(command.Help)
	if command.Detail != "" {
		p.macro("PP")
		p.paragraphs(command.Detail)
	}
	for _, argument := range command.Positional {
		p.term(argument.Summary(), argument.Help, nil)
	}
	for _, flag := range command.Flags {
		if !flag.Hidden {
			p.term(flag.String(), flag.Help, flag.Envs)
		}
	}
}

// term writes an argument or a flag, and what it is.
func (p *page) term(term, help string, variables []string) {
	p.macro("TP")
	p.line(`\fB` + escaped(term) + `\fR`)
	if len(variables) > 0 {
		help = fmt.Sprintf("%s (%s)", help, strings.Join(variables, ", "))
	}
	p.line(escaped(help))
}

// Name returns the name of a command with those of the commands above it, without aliases.
func Name(command *kong.Node) string {
	if command.Parent == nil || command.Parent.Parent == nil {
		return command.Name
	}
	return Name(command.Parent) + " " + command.Name
}

// Usage returns a command with its required flags and its arguments, on one line.
func Usage(command *kong.Node) string {
	return strings.Replace(command.Summary(), command.Path(), Name(command), 1)
}

// escaped is a text that groff takes for text.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", `"`, `\(dq`, "'", `\(aq`).Replace(text)
}
