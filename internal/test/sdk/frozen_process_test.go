package sdk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

// The test program runs itself again as a holder of this lock, on the gateway of childGatewayEnv.
const (
	childLockEnv    = "FENCEGATE_TEST_CHILD_LOCK"
	childGatewayEnv = "FENCEGATE_TEST_CHILD_GATEWAY"
	childTTL        = 6 * time.Second
)

// holdUntilAsked acquires the lock, renews it in the background, and prints that. For each byte that it reads, it
// prints the state of its context, before it does anything else: E is for Err, D for Done.
func holdUntilAsked(lock string) int {
	client, err := lockclient.New(os.Getenv(childGatewayEnv))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	lease, err := client.Acquire(context.Background(), lock, lockclient.WithTTL(childTTL))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	held := lease.Context()
	fmt.Println("holds")
	// The process is frozen in this system call.
	line := make([]byte, 1)
	for {
		if n, err := syscall.Read(0, line); err != nil || n != 1 {
			return 0
		}
		var ended bool
		if line[0] == 'E' {
			ended = errors.Is(held.Err(), lockclient.ErrLeaseLost)
		} else {
			select {
			case <-held.Done():
				ended = true
			default:
			}
		}
		fmt.Println("ended:", ended, "| err:", held.Err(), "| cause:", context.Cause(held))
	}
}

// child is the process of such a holder.
type child struct {
	cmd   *exec.Cmd
	input *os.File
	lines *bufio.Scanner
}

func startChild(t *testing.T, lock string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childLockEnv+"="+lock, childGatewayEnv+"="+gatewayURL)
	theirs, ours, err := os.Pipe()
	check(t, err)
	c.cmd.Stdin, c.input = theirs, ours
	output, err := c.cmd.StdoutPipe()
	check(t, err)
	c.cmd.Stderr = os.Stderr
	check(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = ours.Close()
		_ = theirs.Close()
		_ = c.cmd.Wait()
	})
	c.lines = bufio.NewScanner(output)
	if got := c.line(t); got != "holds" {
		t.Fatalf("the child printed %q, expected that it holds the lock", got)
	}
	return c
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child has ended: %v", c.lines.Err())
	}
	return c.lines.Text()
}

// requestState asks for the state of the context.
func (c *child) requestState(t *testing.T, what string) {
	t.Helper()
	_, err := c.input.WriteString(what)
	check(t, err)
}

// freeze stops the process, and returns when it has stopped.
func (c *child) freeze(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the child does not stop: %v, %v", status, err)
	}
}

func (c *child) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	check(t, c.cmd.Process.Signal(signal))
}

// A process that was frozen past the end of its lease finds its context canceled at its first look at it. What its calls
// return then, a case of clients/cases.json says.
func TestFrozenHolderSeesItsEnd(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	for i, what := range []string{"E", "D", "E", "D"} { // which goroutine runs first after the wake is random
		t.Run(fmt.Sprint(what, i), func(t *testing.T) {
			t.Parallel()
			lock := fmt.Sprint(prefix, "/", i)
			holder := startChild(t, lock)
			holder.requestState(t, what)
			if got := holder.line(t); got != "ended: false | err: <nil> | cause: <nil>" {
				t.Fatalf("before it is frozen: %s", got)
			}
			holder.freeze(t)
			holder.requestState(t, what) // it reads this when it wakes
			lease, err := client.AcquireWithRetry(await.Context(t), lock, often)
			check(t, err) // so the lease of the frozen process has expired
			holder.signal(t, syscall.SIGCONT)
			got := holder.line(t)
			if !strings.HasPrefix(got, "ended: true | err: the lease on "+lock) || !strings.Contains(got, "is lost") ||
				strings.Contains(got, "cause: <nil>") {
				t.Errorf("after %s it printed %q, expected the loss of its lease", what, got)
			}
			check(t, lease.Release(await.Context(t)))
		})
	}
}
