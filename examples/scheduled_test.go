package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
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
	if report := m.get(t, "nightly", "report"); !strings.Contains(report, "has made the report of ") {
		t.Errorf("the record is %q, expected the report", report)
	}
	if day := m.get(t, "nightly", "day"); !strings.Contains(day, time.Now().UTC().Format("2006-")) {
		t.Errorf("the day is %q, expected that of today", day)
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
	if !strings.Contains(text, "\nExecStart="+m.dir+"/"+want+"\n") {
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
