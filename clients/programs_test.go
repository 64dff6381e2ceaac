package clients_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// The Python client and its tests have the types that they say.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	mypy := postgres.Require(t, "mypy")
	inFolder(t, "python", mypy, "--strict", "--python-version", "3.9", "--cache-dir", t.TempDir())
}

// typedProgram has the types that it says, and one fault, with the package as it is installed.
const typedProgram = `import fencegate

client = fencegate.Client("http://127.0.0.1:8080")
with client.lock("job-42") as lease:
    version: int = lease.put("k", "v").version
client.acquire("job-42", ttl="3")  # type: ignore[arg-type]
`

// The installed Python package has its types. Its archives are the same from the clone and from the archive of sources.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	packages := installed(t, "python")
	check(t, os.WriteFile(filepath.Join(packages, "typed.py"), []byte(typedProgram), 0o600))
	inFolder(t, packages, postgres.Require(t, "mypy"), "--strict", "--python-executable", "bin/python", "typed.py")

	const build = "import sys, time; folder, time.time = sys.argv[1], lambda: float(sys.argv[2]); " +
		"import build_package as by; by.build_wheel(folder); by.build_sdist(folder)"
	sources, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	python := postgres.Require(t, "python3")
	inFolder(t, "python", python, "-B", "-c", build, first, "1e9")
	sdist, err := filepath.Glob(filepath.Join(first, "*.tar.gz"))
	check(t, err)
	inFolder(t, sources, "tar", "xzf", sdist[0], "--strip-components=1")
	inFolder(t, sources, python, "-B", "-c", build, second, "2e9")
	inFolder(t, first, "diff", "-r", first, second)
}

// A thread of the Python client sees the end of a lease that another thread is ending.
func TestPythonEnd(t *testing.T) {
	t.Parallel()
	inFolder(t, "python", "env", "PYTHONPATH=src", postgres.Require(t, "python3"), "-m", "unittest", "tests.test_end")
}

// TestPrograms runs programs with the clients before one gateway, on names of their own.
func TestPrograms(t *testing.T) {
	t.Parallel()
	gateway := gateway.Serve(t, postgres.Migrated(t))
	for name, run := range map[string]func(t *testing.T, gatewayURL string){
		"Python delivery": pythonDelivery, "quick starts": quickStarts, "APScheduler": apSchedulerExample,
		"Celery": celeryExample,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, gateway.URL)
		})
	}
}

// The Python client releases each lease that its caller did not get, and returns all of a record.
func pythonDelivery(t *testing.T, gatewayURL string) {
	inFolder(t, "python", "env", "PYTHONPATH=src", "FENCEGATE_URL="+gatewayURL, postgres.Require(t, "python3"),
		"-m", "unittest", "tests.test_delivery")
}

// The TypeScript client has the types that it says, the declarations in types are those of the source, and a program in
// TypeScript can use them.
func TestTypeScriptTypes(t *testing.T) {
	t.Parallel()
	compiler, types := fromNPM(t, "tsc"), t.TempDir()
	inFolder(t, "typescript", compiler, "-p", ".", "--outDir", types)
	inFolder(t, "typescript", "diff", "-r", types, "types") // npm run types writes them
	packages := installed(t, "typescript")
	copyTo(t, filepath.Join("typescript", "test", "types.mts"), packages)
	inFolder(t, packages, compiler, "--strict", "--noEmit", "--target", "es2022",
		"--lib", "es2022,dom", "--module", "nodenext", "--skipLibCheck", "false", "types.mts")
}

// fromNPM returns a program that npm installs for the TypeScript client.
func fromNPM(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("typescript", "node_modules", ".bin", name))
	check(t, err)
	if _, err := os.Stat(path); err != nil {
		process.Missing(t, name+" is not installed in clients/typescript")
	}
	return path
}

func inFolder(t *testing.T, folder, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(await.Context(t), name, args...)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, output)
	}
}

// systemPython is that of the operating system, whose packages have the installer.
const systemPython = "/usr/bin/python3"

var (
	// quickStart is a program of a README, and what it prints.
	quickStart = regexp.MustCompile("(?s)```(?:python|js)\n(.*?)```\n\n```text\n(.*?)```\n")
	tokens     = regexp.MustCompile(`token \d+`)
)

// The programs of the READMEs print what is said there, but for the tokens. They run with the packages as they are
// installed.
func quickStarts(t *testing.T, gatewayURL string) {
	for _, each := range []struct {
		folder, file, program string
		count                 int
	}{
		{"python", "quickstart.py", "bin/python", 2},
		{"typescript", "quickstart.mjs", "node", 1},
	} {
		text, err := os.ReadFile(filepath.Join(each.folder, "README.md"))
		check(t, err)
		found := quickStart.FindAllStringSubmatch(string(text), -1)
		if len(found) != each.count {
			t.Errorf("%s/README.md has %d programs with what they print, expected %d", each.folder, len(found), each.count)
		}
		packages := installed(t, each.folder)
		for _, example := range found {
			source := strings.ReplaceAll(example[1], "http://127.0.0.1:8080", gatewayURL)
			check(t, os.WriteFile(filepath.Join(packages, each.file), []byte(source), 0o600))
			run := exec.CommandContext(await.Context(t), each.program, each.file)
			run.Dir = packages
			output, err := run.CombinedOutput()
			masked := func(text string) string { return tokens.ReplaceAllString(text, "token") }
			if err != nil || masked(string(output)) != masked(example[2]) {
				t.Errorf("%s: %v\n%s\nprinted:\n%s\nexpected:\n%s", each.folder, err, source, output, example[2])
			}
		}
	}
}

// installed installs a package as its README says, from a copy of its folder, without a network and what was fetched
// before. It returns a folder in which node finds the package, or the Python of a virtual environment.
func installed(t *testing.T, folder string) string {
	t.Helper()
	from, to := t.TempDir(), t.TempDir()
	parts := []string{"pyproject.toml", "README.md", "build_package.py", "src"}
	steps := [][]string{
		{systemPython, "-m", "venv", "--without-pip", "."},
		{systemPython, "-m", "pip", "--python", "bin/python", "install", "--quiet", "--no-index", from},
	}
	if folder == "typescript" {
		parts = []string{"package.json", "package-lock.json", "README.md", "src", "types"}
		steps = [][]string{{postgres.Require(t, "npm"), "install", "--offline", "--no-audit", "--no-fund", "--silent", from}}
	} else if err := exec.CommandContext(await.Context(t), systemPython, "-c", "import pip").Run(); err != nil {
		process.Missing(t, fmt.Sprintf("pip is not installed for %s: %v", systemPython, err))
	}
	for _, part := range parts {
		copyTo(t, filepath.Join(folder, part), from)
	}
	for _, step := range steps {
		command := exec.CommandContext(await.Context(t), step[0], step[1:]...)
		command.Dir = to
		command.Env = append(os.Environ(), "PIP_CONFIG_FILE=/dev/null", "PIP_FIND_LINKS=", "npm_config_cache="+t.TempDir())
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, output)
		}
	}
	return to
}

func copyTo(t *testing.T, from, folder string) {
	t.Helper()
	if output, err := exec.CommandContext(await.Context(t), "cp", "-r", from, folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// celeryApp sends a task each second.
const celeryApp = `from celery import Celery
app = Celery("app", broker="memory://")
app.conf.beat_schedule = {"report": {"task": "report", "schedule": 1.0}}
`

// examples returns a function that makes commands of Python programs. They have the client, a gateway and the module.
func examples(t *testing.T, gatewayURL, module string) func(args ...string) *exec.Cmd {
	t.Helper()
	if err := exec.CommandContext(await.Context(t), systemPython, "-c", "import "+module).Run(); err != nil {
		process.Missing(t, fmt.Sprintf("%s is not installed for %s: %v", module, systemPython, err))
	}
	source, err := filepath.Abs("python")
	check(t, err)
	folder := t.TempDir()
	check(t, os.WriteFile(filepath.Join(folder, "app.py"), []byte(celeryApp), 0o600))
	return func(args ...string) *exec.Cmd {
		run := exec.CommandContext(await.Context(t), systemPython, args...)
		run.Dir = folder
		run.Env = append(os.Environ(), "FENCEGATE_URL="+gatewayURL, "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONPATH="+source+"/src:"+source+"/examples:.")
		return run
	}
}

// nightlyJob runs the job of the example for a schedule at 02:00 in Helsinki.
const nightlyJob = `import fencegate, zoneinfo, apscheduler_once as example
client = fencegate.Client(example.URL)
example.once(client, "nights", lambda lease: print("works"), zoneinfo.ZoneInfo("Europe/Helsinki"), 2)()
client.close()
`

// A job that two schedulers start runs once, and again in the next night, also where the clocks change between.
func apSchedulerExample(t *testing.T, gatewayURL string) {
	python := examples(t, gatewayURL, "apscheduler")
	output, err := python("-m", "apscheduler_once").CombinedOutput()
	if err != nil || string(output) != "the report is written\nit is done already\n" {
		t.Errorf("%v\n%s", err, output)
	}
	for _, start := range []struct{ at, prints string }{
		{"2026-03-29T00:00:00Z", "works\n"},
		{"2026-03-29T21:55:00Z", "it is done already\n"}, // 00:55 on the next day
		{"2026-03-29T23:00:00Z", "works\n"},
		{"2026-10-24T23:00:00Z", "works\n"},
		{"2026-10-26T00:00:00Z", "works\n"},
	} {
		at, err := time.Parse(time.RFC3339, start.at)
		check(t, err)
		run := python("-c", nightlyJob)
		run.Env = append(run.Env, "LD_PRELOAD="+process.Libfaketime(t), "FAKETIME_DONT_FAKE_MONOTONIC=1",
			fmt.Sprintf("FAKETIME=%+.3f", time.Until(at).Seconds()))
		if output, err := run.CombinedOutput(); err != nil || string(output) != start.prints {
			t.Errorf("a start at %s: %v\n%s\nexpected %q", start.at, err, output, start.prints)
		}
	}
}

// One of two beats sends tasks, and when it ends, the other does.
func celeryExample(t *testing.T, gatewayURL string) {
	python := examples(t, gatewayURL, "celery")
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
