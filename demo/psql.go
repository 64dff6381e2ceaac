package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// ErrNoPsql says that PostgreSQL's client is not installed.
var ErrNoPsql = errors.New("psql, PostgreSQL's client, was not found (Debian: postgresql-client; macOS: libpq)")

// psql is a psql process that takes statements by its standard input, one at a time.
type psql struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errors bytes.Buffer // what it wrote to standard error; read it when psql has ended
}

func startPsql(ctx context.Context, program, databaseURL string) (p *psql, err error) {
	p = &psql{cmd: exec.CommandContext(ctx, program, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only",
		"--dbname", databaseURL)}
	p.cmd.Stderr = &p.errors
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// sqlError is the answer of PostgreSQL to a statement that failed.
type sqlError struct{ state, message string }

func (e *sqlError) Error() string { return e.state + ": " + e.message }

// answered marks the line that follows the answer to a statement.
const answered = "fencegate-demo-answered "

// run sends statements, and returns the *sqlError of the first one that fails. If psql has ended, since it could not
// connect or has lost its connection, it returns io.EOF.
func (p *psql) run(statements ...string) error {
	for _, statement := range statements {
		// psql may have ended: then there is no answer.
		_, _ = io.WriteString(p.in, statement+";\n\\echo "+answered+":SQLSTATE :LAST_ERROR_MESSAGE\n")
		if err := p.answer(); err != nil {
			return err
		}
	}
	return nil
}

func (p *psql) answer() error {
	for p.out.Scan() {
		result, ok := strings.CutPrefix(p.out.Text(), answered)
		if !ok {
			continue // a row
		}
		if state, message, _ := strings.Cut(result, " "); state != "00000" {
			return &sqlError{state, message}
		}
		return nil
	}
	_ = p.cmd.Wait()
	return fmt.Errorf("psql: %w: %s", io.EOF, strings.TrimSpace(p.errors.String()))
}

// kill ends psql, even a frozen one.
func (p *psql) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
