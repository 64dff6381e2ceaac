package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// launchScript becomes PostgreSQL, under the same pid, when it reads a line. If the pipe ends first it ends too.
const launchScript = `read -r line && exec "$@" </dev/null`

// launch starts PostgreSQL, and the goroutine that owns its end. At no instant can PostgreSQL outlive this process
// unwatched: the process does not become PostgreSQL before the watchdog knows its pid.
func (c *Cluster) launch(config Config, account *account) error {
	output, logStart, err := openServerLog(c.layout.log())
	if err != nil {
		return err
	}
	defer output.Close()
	stdin, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pipe.Close()
	dog, err := startWatchdog(account)
	if err != nil {
		return errors.Join(err, stdin.Close())
	}
	args := append([]string{"-c", launchScript, "sh", c.binaries.Path("postgres")},
		config.postgresArgs(c.layout.cluster(), c.socketDir)...)
	cmd := account.command(context.Background(), "/bin/sh", args...)
	cmd.Env = append(cmd.Env, stalePidEnv(c.layout)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, output, output
	cmd.ExtraFiles = []*os.File{c.postgresLock}
	err = cmd.Start()
	stdin.Close()
	if err != nil {
		dog.dismiss()
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	err = dog.watch(cmd.Process.Pid)
	if err == nil {
		_, err = pipe.WriteString("go\n")
	}
	if err != nil {
		pipe.Close() // without a line to read, the process ends
		err = errors.Join(err, cmd.Wait())
		dog.dismiss()
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	c.cmd, c.dog, c.logStart = cmd, dog, logStart
	go c.reap()
	return nil
}
