package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient/api"
)

// terraformConfig applies a text. With a file to wait for, the apply holds the lock until that is there.
const terraformConfig = `
terraform {
  backend "http" {}
}
variable "text" {}
variable "wait" {
  default = ""
}
resource "terraform_data" "text" {
  input            = var.text
  triggers_replace = var.text
  provisioner "local-exec" {
    command = var.wait == "" ? ":" : "touch ${var.wait}.begun; while test ! -e ${var.wait} && kill -0 $PPID; do sleep 0.05; done"
  }
}
output "text" {
  value = terraform_data.text.output
}
`

// operator is somebody who runs Terraform in a directory of its own.
type operator struct {
	shell
	name, program, dir, address string
	environment                 []string
}

// newOperators returns two users of one state.
func newOperators(t *testing.T, program string) (a, b *operator) {
	t.Helper()
	url := postgres.Migrated(t)
	s := newShellOn(t, url, "--auth", "keys", "--terraform")
	key := fields(s.must("keys", "create", "admin", "--grant", "all:terraform", "--in-database", url))["key"]
	environment := []string{"TF_HTTP_USERNAME=any", "TF_HTTP_PASSWORD=" + key, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1"}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TF_") {
			environment = append(environment, variable)
		}
	}
	await.True(t, "the gateway has read the key", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/terraform/prod", nil)
		check(t, err)
		request.SetBasicAuth("any", key)
		answer, err := http.DefaultClient.Do(request)
		check(t, err)
		check(t, answer.Body.Close())
		return answer.StatusCode < 300 || answer.StatusCode == http.StatusNotFound
	})
	var operators []*operator
	for _, name := range []string{"a", "b"} {
		o := &operator{s, name, program, t.TempDir(), s.url + "/v1/terraform/prod", environment}
		o.initializes("http")
		operators = append(operators, o)
	}
	return operators[0], operators[1]
}

// initializes begins to keep the state in a backend. options are of "terraform init".
func (o *operator) initializes(backend string, options ...string) {
	o.t.Helper()
	config := strings.Replace(terraformConfig, `backend "http"`, "backend "+strconv.Quote(backend), 1)
	check(o.t, os.WriteFile(filepath.Join(o.dir, "main.tf"), []byte(config), 0o600))
	if backend == "http" {
		options = append(options, "-backend-config=address="+o.address, "-backend-config=lock_address="+o.address+"?ttl_ms=7200000",
			"-backend-config=unlock_address="+o.address)
	}
	o.does(0, "initialized", append([]string{"init", "-input=false"}, options...)...)
}

func (o *operator) starts(args ...string) *child {
	o.t.Helper()
	cmd := exec.Command(o.program, append(args, "-no-color")...)
	cmd.Dir, cmd.Env = o.dir, o.environment
	return o.startCommand(strings.NewReader(""), cmd)
}

// does runs a command, which must exit with a code and print some words.
func (o *operator) does(code int, words string, args ...string) string {
	o.t.Helper()
	return o.ended(o.starts(args...), code, words)
}

// ended checks how a command ended.
func (o *operator) ended(p *child, code int, words string) string {
	o.t.Helper()
	got := p.wait()
	o.t.Logf("%s$ terraform %s\n%s%sexit status %d",
		o.name, strings.Join(p.cmd.Args[1:], " "), got.out, got.errOut, got.code)
	text := strings.Join(strings.Fields(strings.ReplaceAll(got.out+got.errOut, "│", "")), " ")
	if got.code != code || !strings.Contains(text, words) {
		o.t.Fatalf("terraform %q exited with %d, want %d and %q in its output", p.cmd.Args[1:], got.code, code, words)
	}
	return text
}

func (o *operator) applies(text string) {
	o.t.Helper()
	o.does(0, "Apply complete!", applyArgs(text)...)
}

func applyArgs(text string) []string {
	return []string{"apply", "-auto-approve", "-input=false", "-var=text=" + text}
}

// beginsToApply starts an apply that holds the lock until the returned function is called.
func (o *operator) beginsToApply(text string) (apply *child, finish func()) {
	o.t.Helper()
	file := filepath.Join(o.t.TempDir(), "finish")
	apply = o.starts(append(applyArgs(text), "-var=wait="+file)...)
	await.True(o.t, "the apply of "+text+" holds the lock", func() bool {
		_, err := os.Stat(file + ".begun")
		return err == nil
	})
	return apply, func() { check(o.t, os.WriteFile(file, nil, 0o600)) }
}

// get reads a path below the state.
func (o *operator) get(path string) []byte {
	o.t.Helper()
	request, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, o.address+path, nil)
	check(o.t, err)
	for _, variable := range o.environment {
		if password, found := strings.CutPrefix(variable, "TF_HTTP_PASSWORD="); found {
			request.SetBasicAuth("any", password)
		}
	}
	response, err := http.DefaultClient.Do(request)
	check(o.t, err)
	defer response.Body.Close()
	var body json.RawMessage
	check(o.t, json.NewDecoder(response.Body).Decode(&body))
	if response.StatusCode != http.StatusOK {
		o.t.Fatalf("GET %s%s was answered %d: %s", o.address, path, response.StatusCode, body)
	}
	return body
}

// expects checks the text in the state.
func (o *operator) expects(text string) {
	o.t.Helper()
	var state struct {
		Outputs struct{ Text struct{ Value string } }
	}
	check(o.t, json.Unmarshal(o.get(""), &state))
	if got := state.Outputs.Text.Value; got != text {
		o.t.Errorf("the state has the text %q, want %q", got, text)
	}
}

// lockID finds the ID of the lock that is in the way.
var lockID = regexp.MustCompile(`already locked: ID=([0-9a-f-]{36})`)

// forceUnlocks breaks the lock that another one holds.
func (o *operator) forceUnlocks() {
	o.t.Helper()
	text := o.does(1, "Error acquiring the state lock", "plan", "-input=false", "-var=text=x")
	found := lockID.FindStringSubmatch(text)
	if found == nil {
		o.t.Fatalf("the lock in the way has no ID in: %s", text)
	}
	o.does(0, "successfully unlocked", "force-unlock", "-force", found[1])
}

// isFencedOff freezes an apply while others act. Then its state must be refused, and it must not be advised to break the
// lock of others.
func (o *operator) isFencedOff(text string, meanwhile func()) {
	o.t.Helper()
	frozen, finish := o.beginsToApply(text)
	frozen.signal(syscall.SIGSTOP)
	meanwhile()
	finish()
	frozen.signal(syscall.SIGCONT)
	if text := o.ended(frozen, 1, "HTTP error: 409"); strings.Contains(text, "releasing the state lock") {
		o.t.Error("an apply that has lost its lock is advised to break its successor's")
	}
}

// TestTerraform runs the whole life of a state by Terraform and OpenTofu, whichever is installed: a lock that is held,
// waited for, left by a killed apply, and broken under a frozen one, whose state is refused and pushed later; and a
// version of the history that is restored.
func TestTerraform(t *testing.T) {
	t.Parallel()
	programs := stateProgramsInstalled(t)
	if len(programs) == 0 {
		process.Missing(t, "neither terraform nor tofu is installed")
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			t.Parallel()
			testStateLife(newOperators(t, program))
		})
	}
}

// TestTerraformMoves moves a state from the backend pg as docs/terraform.md says, and back.
func TestTerraformMoves(t *testing.T) {
	t.Parallel()
	for _, program := range stateProgramsInstalled(t) {
		a, b := newOperators(t, program)
		before := "-backend-config=conn_str=" + postgres.Migrated(t)
		check(t, os.RemoveAll(filepath.Join(a.dir, ".terraform")))
		a.initializes("pg", before)
		a.applies("1")
		a.initializes("http", "-migrate-state", "-force-copy")
		a.expects("1")
		b.does(0, "No changes.", "plan", "-input=false", "-var=text=1")
		b.applies("2")
		a.initializes("pg", before, "-migrate-state", "-force-copy")
		a.does(0, "No changes.", "plan", "-input=false", "-var=text=2")
	}
}

func stateProgramsInstalled(t *testing.T) (programs []string) {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			programs = append(programs, path)
		}
	}
	built, err := exec.CommandContext(t.Context(), "../../scripts/opentofu", "--built").Output()
	if err == nil && len(programs) == 0 {
		programs = append(programs, strings.TrimSpace(string(built)))
	}
	return programs
}

func testStateLife(a, b *operator) {
	t := a.t
	t.Helper()
	a.applies("1")
	a.does(0, "No changes.", "plan", "-input=false", "-var=text=1")

	apply, finish := a.beginsToApply("2")
	b.does(1, "Error acquiring the state lock", "plan", "-input=false", "-var=text=2")
	waiting := b.starts("plan", "-input=false", "-var=text=2", "-lock-timeout=300s")
	waiting.says("Acquiring state lock")
	finish()
	a.ended(apply, 0, "Apply complete!")
	b.ended(waiting, 0, "No changes.")

	killed, _ := a.beginsToApply("3")
	killed.signal(syscall.SIGKILL)
	<-killed.ended
	b.forceUnlocks()
	b.applies("4")

	a.isFencedOff("5", b.forceUnlocks)
	b.expects("4")
	a.does(0, "", "state", "push", "errored.tfstate")
	b.expects("5")

	a.isFencedOff("6", func() {
		b.forceUnlocks()
		b.applies("7")
	})
	b.expects("7")
	a.does(0, "", "state", "push", "-force", "errored.tfstate")
	b.expects("6")

	var history api.StateVersions
	check(t, json.Unmarshal(a.get("/history"), &history))
	before := history.Versions[1].Version
	old := a.get("/history/" + strconv.FormatInt(before, 10))
	check(t, os.WriteFile(filepath.Join(a.dir, "old.tfstate"), old, 0o600))
	a.does(0, "", "state", "push", "-force", "old.tfstate")
	b.expects("7")
	b.does(0, "No changes.", "plan", "-input=false", "-var=text=7")
}
