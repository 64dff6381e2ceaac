package embeddedpg

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// command returns a program to run under the account, in a session of its own: out of reach of the terminal's signals.
func (a *account) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = childEnv(os.Environ())
	cmd.SysProcAttr = a.newSession()
	return cmd
}

// childEnv is what PostgreSQL's programs see of the gateway's environment: no PG* variable, which would change ports,
// data directories and options behind our back, and one locale, so that messages are the same everywhere.
func childEnv(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE"
	})
	return append(kept, "LC_ALL=C")
}
