package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

type runCmd struct {
	underFlags

	Lock    string   `help:"Name of the lock." required:"" placeholder:"NAME"`
	Shared  bool     `help:"Acquire a shared lease: it excludes exclusive leases only, and can't write."`
	Subtree bool     `help:"Hold everything below the name, too."`
	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help is shown by "fencegate run --help".
func (runCmd) Help() string {
	return "Waits for the lock, runs the command while holding it, and releases it when the command has ended. The " +
		"lease is renewed all the while.\n\n" +
		"The command runs in a process group of its own. If the lease is lost, the whole group is stopped: by TERM, and by " +
		"KILL after --kill-after. " +
		"If renewals fail, TERM is sent early enough for KILL to come before the lease expires, so that the group is " +
		"over before another is granted the lock. " +
		"Signals (INT, TERM, HUP, QUIT, USR1, USR2) are passed on to the group. What the command leaves running in the " +
		"background when it ends, runs on without the lock.\n\n" +
		"It finds FENCEGATE_LOCK, FENCEGATE_TOKEN, FENCEGATE_LEASE_ID, FENCEGATE_OWNER_ID and FENCEGATE_URL in its " +
		"environment. So in it\n" +
		"\"fencegate put . KEY VALUE --sequence 1\" writes under the lease, as long as that is the newest.\n\n" +
		"Exit codes: the command's own (128 and the number if a signal ended it), or\n" +
		"  120  the lock was not acquired: it is held by others\n" +
		"  121  the lease was lost, and the command stopped\n" +
		"  122  the gateway or its database is unavailable\n" +
		"  125  any other failure of fencegate; the command did not run\n" +
		"  126  the command can't be executed\n" +
		"  127  the command was not found\n" +
		"    2  the command line is wrong"
}

// Run runs a command under a lock.
func (c *runCmd) Run(ctx context.Context, con *console) error {
	if c.Command = withoutDashes(c.Command); len(c.Command) == 0 {
		return usagef("name a command to run, after --")
	}
	return c.under(ctx, con, c.Lock, c.Command, func(ctx context.Context, client *lockclient.Client,
		options []lockclient.LeaseOption) (*lockclient.Lease, error) {
		if c.Shared {
			options = append(options, lockclient.Shared())
		}
		if c.Subtree {
			options = append(options, lockclient.Subtree())
		}
		return client.Acquire(ctx, c.Lock, options...)
	})
}

// Exit codes of "fencegate run" beside those of the command that it runs: as in timeout(1), numbers that few commands
// use themselves.
const (
	exitRunLockHeld    = 120
	exitRunLeaseLost   = 121
	exitRunUnavailable = 122
	exitRunFailure     = 125
	exitRunNoExecute   = 126
	exitRunNotFound    = 127
	exitRunSignal      = 128 // and the signal's number
)

const (
	// killAfterDefault is the grace of a command that is stopped, where a third of the TTL is not less.
	killAfterDefault = 5 * time.Second
	// graceShare is the part of the TTL that the grace may be: renewals that fail are repeated for twice as long before.
	graceShare = 3
	// forEver is longer than any program runs.
	forEver = time.Duration(math.MaxInt64 / 4)
	// readyTimeout bounds the first look at the gateway, before a wait without end.
	readyTimeout = 10 * time.Second
	// waitingNoteAfter is how long one waits in silence.
	waitingNoteAfter = time.Second
	releaseTimeout   = 5 * time.Second
)

// underFlags are those of commands that run another under a lock.
type underFlags struct {
	gatewayFlags

	OwnerID   string         `help:"The owner, as others see it. Default: user@host:pid." default:"${run_owner}"`
	TTL       time.Duration  `help:"How long the lease lasts when renewals fail, ${limits}. It is renewed at a third of it." default:"30s" set:"limits=300ms to 24h"`
	Wait      *time.Duration `help:"How long to wait for the lock, at most. Default: for ever." placeholder:"DURATION"`
	Try       bool           `help:"Don't wait: if the lock is held, exit with 120." short:"n"`
	KillAfter *time.Duration `help:"How long after TERM a command that must stop is killed; at most a third of the TTL. Default: 5s, or a third of the TTL if that is less." placeholder:"DURATION"`
}

// taking acquires what a command runs under: a lock, or the lead of an election.
type taking func(
	ctx context.Context, client *lockclient.Client, options []lockclient.LeaseOption,
) (*lockclient.Lease, error)

// under runs a command under a lock.
func (c *underFlags) under(ctx context.Context, con *console, lock string, command []string, take taking) error {
	if err := canRun(); err != nil {
		return &runError{exitRunFailure, err}
	}
	grace, err := c.check(lock)
	if err != nil {
		return err
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return cantExecute(err)
	}
	return c.hold(ctx, con, lock, take, func(held *lockclient.Lease, signals <-chan os.Signal) error {
		return runHeld(con, held, program, command, c.environment(held), grace, signals)
	})
}

// hold acquires the lock, lets work do what is to be done, and releases it if work has not. From its begin on, signals
// are work's.
func (c *underFlags) hold(
	ctx context.Context, con *console, lock string, take taking,
	work func(held *lockclient.Lease, signals <-chan os.Signal) error,
) error {
	client, err := c.client(lockclient.WithRetryHook(c.noteRetry(con, lock)))
	if err != nil {
		return err
	}
	defer client.Close()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	held, err := c.acquire(ctx, con, client, lock, take, signals)
	if err != nil {
		return err
	}
	defer held.ReleaseOnce()
	return work(held, signals)
}

// check returns the grace of a command that is to be stopped.
func (c *underFlags) check(lock string) (grace time.Duration, err error) {
	switch {
	case c.Try && c.Wait != nil && *c.Wait > 0:
		return 0, usagef("give --try or --wait, not both")
	case c.Wait != nil && *c.Wait < 0:
		return 0, usagef("--wait is %s, it can't be negative", *c.Wait)
	case c.TTL%time.Millisecond != 0:
		return 0, usagef("--ttl is %s, it must be whole milliseconds", c.TTL)
	case os.Getenv(variableLock) == lock && os.Getenv(variableLeaseID) != "":
		return 0, usagef("this runs under the lock %s already: it would wait for itself", lock)
	}
	longest := c.TTL / graceShare
	if c.KillAfter == nil {
		return min(killAfterDefault, longest), nil
	}
	if *c.KillAfter < 0 || *c.KillAfter > longest {
		return 0, usagef("--kill-after is %s, it must be at most a third of --ttl, %s: it must fit into what is left of a "+
			"lease when renewals fail",
			*c.KillAfter, longest)
	}
	return *c.KillAfter, nil
}

// acquire waits for the lock, until a signal comes.
func (c *underFlags) acquire(
	ctx context.Context, con *console, client *lockclient.Client, lock string, take taking, signals <-chan os.Signal,
) (*lockclient.Lease, error) {
	// The signals that end ctx are among signals.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	interrupted := make(chan os.Signal, 1)
	go func() {
		for {
			select {
			case sent := <-signals:
				if ends(sent) {
					interrupted <- sent
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	wait := forEver
	switch {
	case c.Try:
		wait = 0
	case c.Wait != nil:
		wait = *c.Wait
	}
	if wait == forEver {
		checking, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		if err := client.API().Ready(checking); err != nil {
			return nil, notAcquired(err, lock, interrupted)
		}
	}
	note := time.AfterFunc(waitingNoteAfter, func() { noteWaiting(ctx, con, client, lock) })
	defer note.Stop()
	held, err := take(ctx, client, []lockclient.LeaseOption{
		lockclient.WithLeaseOwner(c.OwnerID), lockclient.WithTTL(c.TTL), lockclient.WithWait(wait),
	})
	if err != nil {
		return nil, notAcquired(err, lock, interrupted)
	}
	return held, nil
}

// noteRetry returns a hook that reports failing acquires and renewals: the first, and then one in a third of the TTL.
func (c *underFlags) noteRetry(con *console, lock string) func(context.Context, lockclient.Retry) {
	var mu sync.Mutex
	var last time.Time
	return func(_ context.Context, failed lockclient.Retry) {
		mu.Lock()
		defer mu.Unlock()
		if !last.IsZero() && time.Since(last) < c.TTL/graceShare {
			return
		}
		last = time.Now()
		con.note("no gateway serves %s, trying again: %v", lock, printableLines(failed.Err))
	}
}

func noteWaiting(ctx context.Context, con *console, client *lockclient.Client, lock string) {
	state, err := client.API().Lock(ctx, lock)
	if err != nil || len(state.Holders) == 0 {
		return
	}
	// This command waits, too, also where its acquire has not arrived yet.
	con.note("waiting for %s, held by %s; %d in the queue", lock, printable.Text(state.Holders[0].OwnerID),
		max(1, len(state.Queue)))
}

// notAcquired says why the command does not run.
func notAcquired(err error, lock string, interrupted <-chan os.Signal) error {
	select {
	case sent := <-interrupted:
		number, _ := sent.(syscall.Signal)
		return &runError{exitRunSignal + int(number), fmt.Errorf("%s while waiting for %s", sent, lock)}
	default:
	}
	code := exitRunFailure
	switch {
	case errors.Is(err, lockclient.ErrLockHeld), errors.Is(err, lockclient.ErrDeadlock):
		code = exitRunLockHeld
	case errors.Is(err, lockclient.ErrUnavailable):
		code = exitRunUnavailable
	}
	return &runError{code, err}
}

// environment is what the command runs in: this one, and what it needs to write under the lease. The number of a write
// under another lease means nothing here.
func (c *underFlags) environment(lease *lockclient.Lease) []string {
	own := []string{
		variableLock + "=" + lease.Name(),
		variableToken + "=" + strconv.FormatInt(lease.FencingToken(), 10),
		variableLeaseID + "=" + lease.ID(),
		variableOwnerID + "=" + lease.Owner(),
		"FENCEGATE_URL=" + strings.Join(c.urls(), ","),
	}
	// Of a variable that is there twice, the last counts.
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "FENCEGATE_SEQUENCE=")
	})
	return append(append(environment, c.connectionFlags.environment()...), own...)
}

// runError is a failure with an exit code of its own.
type runError struct {
	code int
	err  error // nil if the command itself has reported it
}

func (e *runError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("the command ended with %d", e.code)
	}
	return e.err.Error()
}

func (e *runError) Unwrap() error { return e.err }

// conclude releases the lease, and reports how the command ended. lost is a loss that was reported before.
func conclude(con *console, lease *lockclient.Lease, status syscall.WaitStatus, lost error) error {
	code := status.ExitStatus()
	if status.Signaled() {
		code = exitRunSignal + int(status.Signal())
	}
	text := fmt.Sprintf("the command ended with %d", code)
	if lost == nil {
		if lost = giveBack(con, lease); lost != nil {
			text += "; " + lostText(lease, lost)
		}
	}
	switch {
	case lost != nil:
		// The reason is in the text. A problem in the error would add a hint that does not fit here.
		return &runError{exitRunLeaseLost, errors.New(text)}
	case code != 0:
		return &runError{code: code}
	}
	return nil
}

// giveBack releases the lease. It returns an error if the lease turns out to be lost.
func giveBack(con *console, lease *lockclient.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	err := lease.Release(ctx)
	if errors.Is(err, lockclient.ErrLeaseLost) {
		return err
	}
	if err != nil {
		con.note("%s could not be released, and is held until its TTL is over: %v", lease.Name(), printableLines(err))
	}
	return nil
}

// errNotRenewed is the end of a lease that has not come yet, and will.
var errNotRenewed = errors.New("renewals have failed")

// lostText says in one line what was lost, and why.
func lostText(lease *lockclient.Lease, why error) string {
	reason := lostReason(why)
	switch {
	case errors.Is(why, errNotRenewed):
		return fmt.Sprintf("the lease on %s (token %d) could not be renewed, and is about to expire", lease.Name(),
			lease.FencingToken())
	case reason == "":
		reason = "expired, and not renewed in time"
	}
	return fmt.Sprintf("the lease on %s (token %d) is lost: %s", lease.Name(), lease.FencingToken(), reason)
}

// withoutDashes takes off the -- before a command.
func withoutDashes(command []string) []string {
	if len(command) > 0 && command[0] == "--" {
		return command[1:]
	}
	return command
}

// cantExecute returns the exit code that shells use for a command that is missing, or that can't be executed.
func cantExecute(err error) error {
	code := exitRunNoExecute
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitRunNotFound
	}
	return &runError{code, err}
}

// lostReason is the gateway's reason for a lost lease; "" if no gateway gave one.
func lostReason(err error) string {
	if problem := lockclient.ProblemOf(err); problem != nil && problem.Code == api.CodeLeaseLost {
		return problem.Reason
	}
	return ""
}
