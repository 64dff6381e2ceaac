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
	errors bytes.Buffer // what it wrote to standard error; complete when it has ended
}

// startPsql runs psql. It returns ErrNoPsql if there is none.
func startPsql(ctx context.Context, program, databaseURL string) (*psql, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPsql, err)
	}
	p := &psql{cmd: exec.CommandContext(ctx, path, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only",
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

// run sends statements, and returns the first line of the answer to the last one, or its *sqlError. If psql has lost
// its connection, it returns io.EOF.
func (p *psql) run(statements ...string) (answer string, err error) {
	for _, statement := range statements {
		if _, err := io.WriteString(p.in, statement+";\n\\echo "+answered+":SQLSTATE :LAST_ERROR_MESSAGE\n"); err != nil {
			return "", fmt.Errorf("psql: %w", io.EOF)
		}
		if answer, err = p.answer(); err != nil {
			return "", err
		}
	}
	return answer, nil
}

func (p *psql) answer() (answer string, err error) {
	for p.out.Scan() {
		result, ok := strings.CutPrefix(p.out.Text(), answered)
		if !ok {
			if answer == "" {
				answer = p.out.Text()
			}
			continue
		}
		if state, message, _ := strings.Cut(result, " "); state != "00000" {
			return "", &sqlError{state, message}
		}
		return answer, nil
	}
	return "", fmt.Errorf("psql: %w", io.EOF)
}

// kill ends psql, even a frozen one.
func (p *psql) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
