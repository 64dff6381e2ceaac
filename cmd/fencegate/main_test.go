package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/test/surface"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

func TestMain(m *testing.M) {
	// What the developer has set must not decide how commands behave here.
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "FENCEGATE_") && name != "FENCEGATE_DATABASE_URL" {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(postgres.Main(m))
}

// programs are those that run no command at present: a model is slow to build, above all with the race detector.
var programs sync.Pool

// runHere runs a command in this process.
func runHere(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p, _ := programs.Get().(*program)
	if p == nil {
		var err error
		if p, err = newProgram(); err != nil {
			panic(err)
		}
	}
	defer programs.Put(p)
	// The parser resets the values, and keeps which of them were set.
	if err := kong.Visit(p.parser.Model, func(node kong.Visitable, next kong.Next) error {
		if value, is := node.(*kong.Value); is {
			value.Set = false
		}
		return next(nil)
	}); err != nil {
		panic(err)
	}
	return p.run(ctx, args, stdin, stdout, stderr)
}

// shell runs commands against one gateway.
type shell struct {
	t   *testing.T
	url string
}

// newShell starts "fencegate serve" on a database of its own, in this process. It ends with the test, and must end
// well.
func newShell(t *testing.T, flags ...string) shell {
	t.Helper()
	return newShellOn(t, postgres.Migrated(t), flags...)
}

// newShellOn is newShell on a database that is there.
func newShellOn(t *testing.T, databaseURL string, flags ...string) shell {
	t.Helper()
	args := append([]string{"serve", "--database-url", databaseURL, "--listen", "127.0.0.1:0", "--log-level", "warn"},
		flags...)
	ctx, cancel := context.WithCancel(context.Background())
	answers, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := runHere(ctx, args, strings.NewReader(""), stdout, &stderr)
		_ = stdout.Close()
		ended <- code
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("serve exited with %d: %s", code, &stderr)
		}
	})

	lines := bufio.NewReader(answers)
	line, err := lines.ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), " serves on ")
	if err != nil || !found {
		cancel()
		ended <- <-ended
		t.Fatalf("serve said %q: %v: %s", line, err, &stderr)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends with serve, which closes the pipe
	return shell{t, url}
}

// each runs tests that share the gateway, at the same time. Each has locks of its own.
func (s shell) each(tests map[string]func(t *testing.T, s shell)) {
	for name, test := range tests {
		s.t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shell{t, s.url})
		})
	}
}

// result is what a command left behind.
type result struct {
	code        int
	out, errOut string
}

// do runs a command.
func (s shell) do(args ...string) result { return s.doWith("", args...) }

// doWith runs a command with something on its standard input. The gateway is named by a flag: the environment belongs
// to all tests that run in parallel.
func (s shell) doWith(stdin string, args ...string) result {
	if s.url != "" && !slices.Contains(args, "--url") {
		end := len(args)
		if dashes := slices.Index(args, "--"); dashes >= 0 {
			end = dashes
		}
		args = slices.Insert(slices.Clone(args), end, "--url", s.url)
	}
	var out, errOut bytes.Buffer
	code := runHere(context.Background(), args, strings.NewReader(stdin), &out, &errOut)
	return result{code, out.String(), databaseNote.ReplaceAllString(errOut.String(), "")}
}

// databaseNote is what a command with a database writes first: TestCommandsNameTheirDatabase has it.
var databaseNote = regexp.MustCompile(`\Afencegate: database .* at .*\n`)

// must runs a command that has to succeed without a word on stderr, and returns its output.
func (s shell) must(args ...string) string {
	s.t.Helper()
	got := s.do(args...)
	if got.code != exitOK || got.errOut != "" {
		s.t.Fatalf("%q exited with %d: %s%s", args, got.code, got.out, got.errOut)
	}
	return got.out
}

// fails runs a command that must exit with a code, write the words to stderr, and nothing to stdout.
func (s shell) fails(code int, words string, args ...string) {
	s.t.Helper()
	got := s.do(args...)
	if got.code != code || got.out != "" || !strings.Contains(got.errOut, words) {
		s.t.Errorf("%q exited with %d and %q, want %d and %q; stdout: %q", args, got.code, got.errOut, code, words, got.out)
	}
	if lines := strings.Count(got.errOut, "\n"); lines < 1 || lines > 3 || lines > 2 && code != exitUsage {
		s.t.Errorf("%q: the error has %d lines: %s", args, lines, got.errOut)
	}
}

// fields reads the text form of an answer.
func fields(out string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		values[name] = strings.TrimLeft(value, " ")
	}
	return values
}

// parseLine reads exactly one line that is exactly one document, of known fields.
func parseLine(t *testing.T, out string, document any) {
	t.Helper()
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "\n") {
		t.Fatalf("%q is not one line", out)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(out)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(document); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// child is fencegate as a process of its own. In scripts that it runs, "$FENCEGATE" is the program, and "$CHECKED" that
// with the race detector, which takes some 200 ms more to start.
type child struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, errOut process.Buffer
	ended       chan struct{}
}

// start runs fencegate with nothing on its standard input. It is killed if it still runs when the test ends.
func (s shell) start(args ...string) *child { return s.startWith(strings.NewReader(""), args...) }

// startWith runs it with a standard input.
func (s shell) startWith(stdin io.Reader, args ...string) *child {
	s.t.Helper()
	return s.startCommand(stdin, exec.Command(process.BuildChecked(s.t), args...))
}

func (s shell) startCommand(stdin io.Reader, cmd *exec.Cmd) *child {
	s.t.Helper()
	p := &child{t: s.t, cmd: cmd, ended: make(chan struct{})}
	cmd.Env = append(cmd.Environ(), "FENCEGATE="+process.Build(s.t), "CHECKED="+process.BuildChecked(s.t),
		"FENCEGATE_URL="+s.url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &p.out, &p.errOut
	cmd.WaitDelay = 20 * time.Second // a grandchild that is left behind has the pipes, too
	check(s.t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// wait returns what came of it.
func (p *child) wait() result {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(await.Limit):
		p.t.Fatalf("%q does not end: %s%s", p.cmd.Args, p.out.String(), p.errOut.String())
	}
	return result{p.cmd.ProcessState.ExitCode(), p.out.String(), p.errOut.String()}
}

// wants expects how it ends, and words on its standard error.
func (p *child) wants(code int, words string) result {
	p.t.Helper()
	got := p.wait()
	if got.code != code || !strings.Contains(got.errOut, words) {
		p.t.Errorf("%q exited with %d, want %d and %q: %s%s", p.cmd.Args[1:], got.code, code, words, got.out, got.errOut)
	}
	return got
}

// says waits for words on its standard output.
func (p *child) says(words string) {
	p.t.Helper()
	p.until(fmt.Sprintf("it writes %q", words), func() bool { return strings.Contains(p.out.String(), words) })
}

// until waits for what happens before the command ends.
func (p *child) until(what string, happened func() bool) {
	p.t.Helper()
	await.True(p.t, fmt.Sprintf("%q: %s", p.cmd.Args[1:], what), func() bool {
		select {
		case <-p.ended:
			if !happened() {
				p.t.Fatalf("%q ended before this: %s: %s%s", p.cmd.Args[1:], what, p.out.String(), p.errOut.String())
			}
			return true
		default:
			return happened()
		}
	})
}

func (p *child) signal(number syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(number); err != nil {
		p.t.Fatalf("%q: %v: %s%s", p.cmd.Args[1:], err, p.out.String(), p.errOut.String())
	}
}

// pidIn reads a number that a script has written.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	await.True(t, "a process number in "+path, func() bool {
		text, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	return pid
}

// TestSurface compares the commands, their arguments, flags with defaults and variables, and the exit codes with
// cli.golden. A flag of serve is a key of its configuration file, too.
func TestSurface(t *testing.T) {
	t.Parallel()
	p, err := newProgram()
	check(t, err)
	var lines []string
	for _, exit := range exitMeanings {
		lines = append(lines, fmt.Sprintf("exit %d: %s", exit.code, strings.Join(strings.Fields(exit.meaning), " ")))
	}
	for _, command := range p.parser.Model.Leaves(true) {
		usage := command.FullPath()
		lines = append(lines, strings.Join(append([]string{usage}, arguments(command)...), " "))
		for _, flags := range command.AllFlags(true) {
			for _, flag := range flags {
				lines = append(lines, usage+" "+flagLine(flag))
			}
		}
	}
	surface.Compare(t, "../../internal/test/surface/testdata/cli.golden", lines)
}

func arguments(command *kong.Node) (summaries []string) {
	for _, argument := range command.Positional {
		summaries = append(summaries, argument.Summary())
	}
	return summaries
}

// flagLine shows a flag with its default as it stands in the source: some depend on the machine.
func flagLine(flag *kong.Flag) string {
	line := "--" + flag.Name
	if flag.Tag.Negatable != "" {
		line = "--[no-]" + flag.Name
	}
	if flag.Short != 0 {
		line += fmt.Sprintf(" -%c", flag.Short)
	}
	if !flag.IsBool() {
		line += " VALUE"
	}
	if flag.IsCumulative() {
		line += ",…"
	}
	for _, part := range []struct{ name, value string }{
		{"enum", flag.Tag.Enum}, {"default", flag.Tag.Default}, {"env", strings.Join(flag.Envs, ",")},
	} {
		if part.value != "" {
			line += " " + part.name + "=" + part.value
		}
	}
	return line
}
