//go:build unix

package docs_test

import (
	"crypto/md5" // as S3 makes an ETag
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
)

// prelude is what a shell needs before the commands of a document. A gateway that a document starts runs in the
// background at a free address, until the document ends. The addresses of documents are replaced by those of the test.
const prelude = `
set -o pipefail
exec 2>&1
fencegate() {
	[ "${1-}" = serve ] || { command fencegate "$@"; return; }
	local args=() ready; ready=$(mktemp -u "$PWD/ready.XXXXXX")
	while [ $# -gt 0 ]; do
		if [ "$1" = --listen ]; then shift 2; else args+=("$1"); shift; fi
	done
	command fencegate "${args[@]}" --listen 127.0.0.1:0 --ready-file "$ready" >"$ready.log" 2>&1 &
	until [ -s "$ready" ]; do
		kill -0 $! 2>/dev/null || { cat "$ready.log"; return 1; }
		sleep 0.05
	done
	FENCEGATE_URL=$(cat "$ready") URL=$FENCEGATE_URL
}
_prepare() { # writes the files of a step, and its script
	local file
	for file in "$STEPS/$1"/*; do
		sed "s|http://127.0.0.1:8080|$FENCEGATE_URL|g; s|https://localhost:8080|$FENCEGATE_URL|g;
			s|redis://127.0.0.1:6379|$REDIS_URL|g; s|127.0.0.1:9001|$FREE_1|g
			s|127.0.0.1:9002|$FREE_2|g" "$file" > "${file##*/}"
		chmod +x "${file##*/}"
	done
}
_end() { printf '\n<step %d ended with %d>\n' "$1" "$2"; }
trap 'kill $(jobs -p) 2>/dev/null; kill -CONT $(jobs -p) 2>/dev/null; wait' EXIT
`

// databaseNote is what a command with a database writes first.
var databaseNote = regexp.MustCompile(`(?m)^fencegate: database \S+ at \S+\n`)

var stepEnd = regexp.MustCompile(`\n<step (\d+) ended with (\d+)>\n`)

// script is the name of a step's commands among its files.
const script = ".commands"

// session runs the steps of one document in one bash.
func session(t *testing.T, document string, steps []step) {
	t.Helper()
	folder, prepared := t.TempDir(), t.TempDir()
	env, gatewayURL := environment(t, folder, steps)
	text := prelude + "cd '" + folder + "'\n"
	for i, s := range steps {
		files := map[string]string{script: s.script}
		for name, content := range s.files {
			files[name] = content
		}
		at := filepath.Join(prepared, strconv.Itoa(i))
		check(t, os.Mkdir(at, 0o700))
		for name, content := range files {
			check(t, os.WriteFile(filepath.Join(at, name), []byte(content), 0o600))
		}
		text += fmt.Sprintf("_prepare %d; . ./%s </dev/null; _end %d $?\n", i, script, i)
	}
	bash := exec.CommandContext(await.Context(t), postgres.Require(t, "bash"), "-O", "dotglob", "-c", text)
	bash.Env = slices.Concat(env, []string{"STEPS=" + prepared})
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	printed, err := bash.CombinedOutput()
	ends := stepEnd.FindAllSubmatchIndex(printed, -1)
	if err != nil || len(ends) != len(steps) {
		t.Errorf("%s: the session broke off after %d of %d steps: %v\n%s", document, len(ends), len(steps), err, printed)
	}
	compare, begin := output{map[string]string{}}, 0
	for i, end := range ends {
		s, code := steps[i], string(printed[end[4]:end[5]])
		got := strings.ReplaceAll(string(printed[begin:end[0]]), gatewayURL, "http://127.0.0.1:8080")
		got = databaseNote.ReplaceAllString(got, "fencegate: database app at db-1:5432\n")
		begin = end[1]
		switch {
		case s.output != "" && !compare.matches(s.output, got):
			t.Errorf("%s:%d: %s\nprinted:\n%s\nthe document shows:\n%s", s.block.file, s.block.line, s.script, got, s.output)
		case s.output == "" && code != "0" || s.prints && strings.TrimSpace(got) == "":
			t.Errorf("%s:%d: %s\nended with %s:\n%s", s.block.file, s.block.line, s.script, code, got)
		}
	}
}

// environment starts a gateway on a database of its own, and returns the variables by which the commands of a document
// find it. The folder, in which they run, gets what they need.
func environment(t *testing.T, folder string, steps []step) (env []string, gatewayURL string) {
	t.Helper()
	databaseURL := postgres.Migrated(t)
	gateway := gateway.Serve(t, databaseURL)
	config, err := pgconn.ParseConfig(databaseURL)
	check(t, err)
	clone, err := filepath.Abs(root)
	check(t, err)
	check(t, os.Symlink(filepath.Join(clone, "examples"), filepath.Join(folder, "examples")))

	path := filepath.Dir(postgres.Require(t, "psql"))
	postgres.Require(t, "curl")
	redisURL, pooledURL := "", ""
	for _, s := range steps {
		if pooledURL == "" && strings.Contains(s.block.text, "$POOLED_URL") {
			pooledURL = postgres.NewPooler(t, databaseURL).URL(t, databaseURL)
		}
		if redisURL == "" && strings.Contains(s.block.text, "redis://127.0.0.1:6379") {
			postgres.Require(t, "redis-cli")
			redisURL = redis.Start(t).URL()
		}
		if strings.Contains(s.block.text, "import fencegate, redis") &&
			exec.CommandContext(await.Context(t), "/usr/bin/python3", "-c", "import redis").Run() != nil {
			process.Missing(t, "redis is not installed for /usr/bin/python3")
		}
	}
	link := filepath.Join(t.TempDir(), "fencegate")
	check(t, os.Symlink(process.Build(t), link))
	return append(os.Environ(),
		"PATH="+filepath.Dir(link)+":"+path+":"+os.Getenv("PATH"), "CLONE="+clone,
		"BUCKET="+bucket(t), "FENCEGATE_URL="+gateway.URL, "URL="+gateway.URL, "OPEN_URL="+gateway.URL, "REDIS_URL="+redisURL,
		"POOLED_URL="+pooledURL, "FREE_1="+network.FreeAddress(t), "FREE_2="+network.FreeAddress(t),
		"FENCEGATE_DATABASE_URL="+databaseURL, "DATABASE_URL="+databaseURL,
		"PGHOST="+config.Host, "PGPORT="+strconv.Itoa(int(config.Port)), "PGUSER="+config.User,
		"PGPASSWORD="+config.Password, "PGDATABASE="+config.Database, "PGSSLMODE=disable", "PGTZ=UTC", "TZ=UTC",
	), gateway.URL
}

// bucket serves objects as S3 does, as far as a document needs it: GET, and PUT with If-Match and If-None-Match.
func bucket(t *testing.T) (url string) {
	t.Helper()
	var mutex sync.Mutex
	objects := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		object, exists := objects[r.URL.Path]
		etag := fmt.Sprintf(`"%x"`, md5.Sum(object))
		match := r.Header.Get("If-Match")
		switch body, err := io.ReadAll(r.Body); {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		case r.Method == http.MethodGet && exists:
			w.Header().Set("ETag", etag)
			_, _ = w.Write(object)
		case r.Method == http.MethodGet, match != "" && !exists:
			w.WriteHeader(http.StatusNotFound)
		case match != "" && match != etag, r.Header.Get("If-None-Match") == "*" && exists:
			w.WriteHeader(http.StatusPreconditionFailed)
		default:
			objects[r.URL.Path] = body
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
