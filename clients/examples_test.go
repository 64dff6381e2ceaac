package clients_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// celeryApp sends a task each second.
const celeryApp = `from celery import Celery
app = Celery("app", broker="memory://")
app.conf.beat_schedule = {"report": {"task": "report", "schedule": 1.0}}
`

// examples returns a function that makes commands of Python programs. They have the client, a gateway
// and the module.
func examples(t *testing.T, module string) func(args ...string) *exec.Cmd {
	t.Helper()
	if err := exec.CommandContext(await.Context(t), systemPython, "-c", "import "+module).Run(); err != nil {
		process.Missing(t, fmt.Sprintf("%s is not installed for %s: %v", module, systemPython, err))
	}
	gateway := gateway.Serve(t, postgres.Migrated(t))
	source, err := filepath.Abs("python")
	check(t, err)
	folder := t.TempDir()
	check(t, os.WriteFile(filepath.Join(folder, "app.py"), []byte(celeryApp), 0o600))
	return func(args ...string) *exec.Cmd {
		run := exec.CommandContext(await.Context(t), systemPython, args...)
		run.Dir = folder
		run.Env = append(os.Environ(), "FENCEGATE_URL="+gateway.URL, "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONPATH="+source+"/src:"+source+"/examples:.")
		return run
	}
}

// A job that two schedulers start runs once.
func TestAPSchedulerExample(t *testing.T) {
	t.Parallel()
	python := examples(t, "apscheduler")
	output, err := python("-m", "apscheduler_once").CombinedOutput()
	if err != nil || string(output) != "the report is written\nit is done already\n" {
		t.Errorf("%v\n%s", err, output)
	}
}

// One of two beats sends tasks, and when it ends, the other does.
func TestCeleryExample(t *testing.T) {
	t.Parallel()
	python := examples(t, "celery")
	beat := func(name string) (sent func() int, end func()) {
		log := &process.Buffer{}
		run := python("-m", "celery", "--app", "app", "beat", "--scheduler", "celery_beat:FencedScheduler",
			"--schedule", name, "--pidfile", "", "--loglevel", "INFO")
		run.Stdout, run.Stderr = log, log
		check(t, run.Start())
		end = func() {
			_ = run.Process.Signal(os.Interrupt)
			_ = run.Wait()
		}
		return func() int { return strings.Count(log.String(), "Sending due task") }, end
	}
	first, endFirst := beat("first")
	await.True(t, "tasks of the first beat", func() bool { return first() > 1 })
	second, endSecond := beat("second")
	defer endSecond()
	before := first()
	await.True(t, "more tasks of the first beat", func() bool { return first() > before+3 })
	if second() > 0 {
		t.Error("both beats sent tasks")
	}
	endFirst()
	await.True(t, "tasks of the second beat", func() bool { return second() > 0 })
}
