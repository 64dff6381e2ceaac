package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
)

// machine is a folder in which the examples for scheduled jobs are installed, with the program, and a gateway.
type machine struct {
	dir, url string
	rewrite  *strings.Replacer
}

func newMachine(t *testing.T) machine {
	t.Helper()
	gateway := gateway.Serve(t, postgres.Migrated(t))
	m := machine{dir: t.TempDir(), url: gateway.URL}
	check(t, os.Symlink(process.Build(t), filepath.Join(m.dir, "fencegate")))
	job, err := filepath.Abs("scheduled/nightly.sh")
	check(t, err)
	check(t, os.Symlink(job, filepath.Join(m.dir, "nightly.sh")))
	m.rewrite = strings.NewReplacer("/usr/local/bin", m.dir, "http://10.0.0.1:8080,http://10.0.0.2:8080", m.url,
		"FENCEGATE_TOKEN_FILE=/etc/fencegate/key", "IGNORED=")
	return m
}

// install copies an example to the machine, with the machine's paths, and returns its path and text.
func (m machine) install(t *testing.T, name string) (path, text string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("scheduled", name))
	check(t, err)
	path, text = filepath.Join(m.dir, name), m.rewrite.Replace(string(source))
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path, text
}

// get returns a record, as the command line shows it.
func (m machine) get(t *testing.T, resource, key string) string {
	t.Helper()
	output, err := exec.CommandContext(await.Context(t), filepath.Join(m.dir, "fencegate"), "get", resource, key,
		"--url", m.url).CombinedOutput()
	if err != nil {
		t.Fatalf("get %s %s: %v\n%s", resource, key, err, output)
	}
	return string(output)
}

func TestScheduledJobs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	t.Run("cron", func(t *testing.T) { testCron(t, m) })
	t.Run("nights", func(t *testing.T) { testNights(t, m) })
	t.Run("a night that ends meanwhile", func(t *testing.T) { testWaitIntoTheNextNight(t, m) })
	t.Run("systemd", func(t *testing.T) { testSystemdUnits(t, m) })
	t.Run("GitHub Actions", func(t *testing.T) { testGitHubActions(t, m) })
}

// The job of the crontab, which several machines start at once in cron's environment, is done once.
func testCron(t *testing.T, m machine) {
	t.Helper()
	_, text := m.install(t, "fencegate-nightly.cron")
	environment, line := crontab(t, text)
	const machines = 3
	outputs := make([]string, machines)
	var running sync.WaitGroup
	for i := range machines {
		running.Go(func() {
			job := exec.CommandContext(await.Context(t), "/bin/sh", "-c", line)
			job.Dir, job.Env = "/", append([]string{"SHELL=/bin/sh", "HOME=/", "LOGNAME=nightly"}, environment...)
			output, err := job.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", line, err, output)
			}
			outputs[i] = string(output)
		})
	}
	running.Wait()
	all := strings.Join(outputs, "")
	if strings.Count(all, "is there already") != machines-1 {
		t.Errorf("expected %d machines that find the report of another:\n%s", machines-1, all)
	}
	night := thereAlready.FindStringSubmatch(all)
	if len(night) == 0 {
		t.Fatalf("no machine says of which night the report is:\n%s", all)
	}
	if report := m.get(t, "nightly", night[1]); !strings.Contains(report, "has made the report of "+night[1]) {
		t.Errorf("the record is %q, expected the report", report)
	}
}

var thereAlready = regexp.MustCompile(`the report of (\S+) is there already`)

// nights are starts of a job whose schedule is 02:00 in a time zone, and the nights that they are for.
var nights = []struct {
	what, zone, start, night string
}{
	{"on time in winter", "Europe/Helsinki", "2026-03-28T00:00:00Z", "2026-03-28"},
	{"on time, before the change in spring", "Europe/Helsinki", "2026-03-29T00:00:00Z", "2026-03-29"},
	{"on time, after the change in spring", "Europe/Helsinki", "2026-03-29T23:00:00Z", "2026-03-30"},
	{"on time, before the change in autumn", "Europe/Helsinki", "2026-10-24T23:00:00Z", "2026-10-25"},
	{"on time, after the change in autumn", "Europe/Helsinki", "2026-10-26T00:00:00Z", "2026-10-26"},
	{"by a clock that is an hour ahead", "Europe/Helsinki", "2026-07-01T22:00:00Z", "2026-07-02"},
	{"22 hours late", "Europe/Helsinki", "2026-07-02T21:30:00Z", "2026-07-02"},
	{"skipped hour", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29"},
	{"repeated hour, first", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25"},
	{"repeated hour, second", "Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25"},
	{"the hour before was skipped", "Europe/London", "2026-03-29T01:00:00Z", "2026-03-29"},
	{"the hour after midnight was skipped", "America/Havana", "2026-03-08T06:00:00Z", "2026-03-08"},
	{"the hour after midnight was repeated", "America/Havana", "2026-11-01T07:00:00Z", "2026-11-01"},
}

// clocked returns the environment of a program in a time zone, whose clock is that of a file.
func clocked(t *testing.T, zone, clock string) []string {
	t.Helper()
	return []string{
		"TZ=" + zone, "LD_PRELOAD=" + process.Libfaketime(t), "FAKETIME_TIMESTAMP_FILE=" + clock, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// setClock lets a clock be at an instant now.
func setClock(t *testing.T, clock, instant string) {
	t.Helper()
	check(t, os.WriteFile(clock+".new", fmt.Appendf(nil, "%+.3f\n", time.Until(parse(t, instant)).Seconds()), 0o600))
	check(t, os.Rename(clock+".new", clock))
}

func parse(t *testing.T, instant string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, instant)
	check(t, err)
	return parsed
}

// The job, and each expression of the documentation, find the night of a start.
func testNights(t *testing.T, m machine) {
	t.Helper()
	page, err := os.ReadFile("../docs/recipes.md")
	check(t, err)
	shown := map[string]string{}
	for _, found := range ofNight.FindAllStringSubmatch(string(page), -1) {
		shown[found[1]] = found[2]
	}
	_, cron := m.install(t, "fencegate-nightly.cron")
	environment, line := crontab(t, cron)
	conn := connect(t, postgres.Migrated(t))
	goNight, clock := goProgram(t, shown["Go"]), filepath.Join(m.dir, "clock")
	for _, start := range nights {
		setClock(t, clock, start.start)
		seconds := strconv.FormatInt(parse(t, start.start).Unix(), 10)
		program := func(name string, args ...string) string {
			run := exec.CommandContext(await.Context(t), name, args...)
			run.Env = slices.Concat([]string{"SHELL=/bin/sh"}, environment, clocked(t, start.zone, clock))
			output, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%s, %s: %v\n%s", start.what, run, err, output)
			}
			return strings.TrimSpace(string(output))
		}
		expression := func(language string) string {
			if shown[language] == "" {
				t.Fatalf("docs/recipes.md does not show the night in %s", language)
			}
			return strings.ReplaceAll(shown[language], "Europe/Helsinki", start.zone)
		}
		var sql string
		check(t, conn.QueryRow(t.Context(), "select "+strings.ReplaceAll(expression("SQL"), "now()",
			"to_timestamp("+seconds+")")+"::text").Scan(&sql))
		for what, night := range map[string]string{
			"shell":      program("/bin/sh", "-c", expression("shell")),
			"SQL":        sql,
			"Python":     program(python, "-c", pythonImports+"print("+expression("Python")+")"),
			"Go":         program(goNight, seconds, start.zone),
			"JavaScript": program(postgres.Require(t, "node"), "-e", "console.log("+expression("JavaScript")+")"),
		} {
			if night != start.night {
				t.Errorf("%s in %s, %s: the night is %q, expected %s", start.what, start.zone, what, night, start.night)
			}
		}
		if output := program("/bin/sh", "-c", line); !strings.Contains(output, start.night) {
			t.Errorf("%s in %s, %s: %s\nexpected the night %s", start.what, start.zone, line, output, start.night)
		}
	}
	everyNight(t, conn, shown["SQL"])
}

const pythonImports = "from datetime import *; from zoneinfo import *; "

// ofNight is a row of the table of expressions.
var ofNight = regexp.MustCompile("(?m)^\\| (shell|SQL|Python|Go|JavaScript)[^|]* \\| `([^`]+)` \\|$")

// goProgram builds a program that prints the night of a start, in seconds since 1970, and a time zone.
func goProgram(t *testing.T, expression string) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "night")
	check(t, os.WriteFile(source, []byte(`package main
import ("fmt"; "os"; "strconv"; "time")
func main() {
	seconds, _ := strconv.ParseInt(os.Args[1], 10, 64)
	zone, err := time.LoadLocation(os.Args[2])
	if err != nil { panic(err) }
	t := time.Unix(seconds, 0).In(zone)
	fmt.Println(`+expression+`)
}
`), 0o600))
	build := exec.CommandContext(await.Context(t), "go", "build", "-o", binary, source)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the expression %s: %v\n%s", expression, err, output)
	}
	return binary
}

// everyNight checks that in no time zone a start on time is for another night.
func everyNight(t *testing.T, conn *pgx.Conn, expression string) {
	t.Helper()
	const start = "((night + time '02:00') at time zone name)"
	rows, err := conn.Query(t.Context(), "select name || ' ' || night from pg_timezone_names, "+
		"generate_series(timestamp '2026-01-01', '2026-12-31', '1 day') as night where night <> "+
		strings.NewReplacer("now()", start, "'Europe/Helsinki'", "name").Replace(expression))
	check(t, err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(wrong) > 0 {
		t.Errorf("%d starts on time are for another night: %q, %v", len(wrong), wrong, err)
	}
}

// A machine that waits for the lock until the next night has begun looks for the night of its start.
func testWaitIntoTheNextNight(t *testing.T, m machine) {
	t.Helper()
	_, cron := m.install(t, "fencegate-nightly.cron")
	environment, line := crontab(t, cron)
	client, err := lockclient.New(m.url)
	check(t, err)
	defer client.Close()
	lease, err := client.Acquire(t.Context(), "nightly")
	check(t, err)
	clock := filepath.Join(m.dir, "clock")
	setClock(t, clock, "2026-08-01T21:30:00Z")
	job := exec.CommandContext(await.Context(t), "/bin/sh", "-c", line)
	job.Env = slices.Concat(environment, clocked(t, "Europe/Helsinki", clock))
	output := &process.Buffer{}
	job.Stdout, job.Stderr = output, output
	check(t, job.Start())
	await.True(t, "the job waits for the lock", func() bool {
		state, err := client.API().Lock(t.Context(), "nightly")
		check(t, err)
		return state.QueueLength > 0
	})
	setClock(t, clock, "2026-08-01T22:30:00Z")
	check(t, lease.Release(t.Context()))
	if err := job.Wait(); err != nil || !strings.Contains(output.String(), "2026-08-01") {
		t.Errorf("%v\n%s\nexpected the report of 2026-08-01, the night of the start", err, output)
	}
}

// cronTime is the five fields that say when.
var cronTime = regexp.MustCompile(`^[0-9*/,-]+( [0-9*/,-]+){4}$`)

// crontab returns the variables and the one command of a file for /etc/cron.d.
func crontab(t *testing.T, text string) (environment []string, command string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.Contains(fields[0], "="):
			environment = append(environment, line)
		case len(fields) > 6 && command == "" && cronTime.MatchString(strings.Join(fields[:5], " ")):
			command = strings.Join(fields[6:], " ") // after the time and the user
		default:
			t.Fatalf("%q is no line of a crontab", line)
		}
	}
	if command == "" || strings.Contains(command, "%") {
		t.Fatalf("the command is %q: expected one without %%, which ends the line in cron", command)
	}
	return environment, command
}

// systemd accepts the units, and their command is that of the crontab.
func testSystemdUnits(t *testing.T, m machine) {
	t.Helper()
	service, text := m.install(t, "fencegate-nightly.service")
	timer, _ := m.install(t, "fencegate-nightly.timer")
	verify := exec.CommandContext(await.Context(t), postgres.Require(t, "systemd-analyze"), "verify", "--man=no",
		"--recursive-errors=no", service, timer)
	if output, err := verify.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("%s: %v\n%s", verify, err, output)
	}
	_, cron := m.install(t, "fencegate-nightly.cron")
	_, want := crontab(t, cron)
	if !strings.Contains(text, "\nExecStart="+want+"\n") {
		t.Errorf("the service does not run the command of the crontab, %s", want)
	}
}

// The step of the workflow runs the deployment, which finds its token.
func testGitHubActions(t *testing.T, m machine) {
	t.Helper()
	_, text := m.install(t, "github-actions.yaml")
	var workflow struct {
		Name        string
		On          any
		Permissions map[string]string
		Jobs        map[string]struct {
			RunsOn  string `yaml:"runs-on"`
			Minutes int    `yaml:"timeout-minutes"`
			Env     map[string]string
			Steps   []struct {
				Name, Uses, Run string
				With            map[string]any
				Env             map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	check(t, decoder.Decode(&workflow))
	job := workflow.Jobs["deploy"]
	if job.Env["FENCEGATE_URL"] == "" || job.Env["FENCEGATE_BEARER_TOKEN"] == "" || len(job.Steps) == 0 {
		t.Fatalf("the job is %+v, expected the gateways, a credential and steps", job)
	}
	check(t, os.WriteFile(filepath.Join(m.dir, "deploy.sh"), []byte("#!/bin/sh\necho \"with token $FENCEGATE_TOKEN\"\n"), 0o700))
	step := exec.CommandContext(await.Context(t), "/bin/sh", "-e", "-c", job.Steps[len(job.Steps)-1].Run)
	step.Dir = m.dir
	step.Env = append(os.Environ(), "PATH="+m.dir+":"+os.Getenv("PATH"), "FENCEGATE_URL="+m.url)
	output, err := step.CombinedOutput()
	if token, found := strings.CutPrefix(string(output), "with token "); err != nil || !found || strings.TrimSpace(token) == "" {
		t.Errorf("%s: %v\n%s", step, err, output)
	}
}
