package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/fencegate/fencegate/demo"
)

type devCmd struct {
	servedFlags

	Listen string        `help:"Address to serve on; port 0 takes a free one." env:"FENCEGATE_LISTEN" default:"127.0.0.1:8080"`
	Open   bool          `help:"Open the dashboard in a browser."`
	Every  time.Duration `help:"How often a worker is frozen, 1s to 1h; 0: never. A round takes about four seconds." default:"5s"`
	Quiet  bool          `help:"Do not print what the workers do."`
}

// devNamespace precedes the names that the workers use.
const devNamespace = "dev"

// Help is shown by "fencegate dev --help".
func (devCmd) Help() string {
	return "Serves until an interrupt, on this machine only, without authentication. Two worker processes at a time contend " +
		"for a lock below dev/. One is frozen (SIGSTOP) until its lease has expired and the other has written, then its own " +
		"write is rejected. Data is kept from run to run, where serve keeps it. Variables of the environment are those of " +
		"serve. Exits 1 as soon as a stale write was stored."
}

// Run serves, and has workers frozen, until ctx ends.
func (c *devCmd) Run(ctx context.Context, streams streams) error {
	if c.Every != 0 {
		if err := checkEvery(c.Every); err != nil {
			return err
		}
	}
	serve, err := c.serve()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		defer cancel()
		ended <- serve.run(ctx, streams.err, func(url string, db *database) {
			c.introduce(streams, url, db)
			served <- url
		})
	}()
	select {
	case err := <-ended:
		return err
	case url := <-served:
		err := c.freezeWorkers(ctx, streams.out, url)
		cancel()
		return errors.Join(err, <-ended)
	}
}

// serve returns a gateway with the settings of the environment.
func (c *devCmd) serve() (*serveCmd, error) {
	p, err := newProgram()
	if err == nil {
		_, err = p.parser.Parse([]string{"serve"})
	}
	if err != nil {
		return nil, err
	}
	serve := &p.commands.Serve
	if serve.authenticated() || serve.scheme() != "http" {
		return nil, usagef("dev has neither authentication nor TLS. Unset FENCEGATE_AUTH and FENCEGATE_TLS_CERT, or take serve.")
	}
	serve.servedFlags, serve.Listen, serve.LogLevel = c.servedFlags, c.Listen, "warn"
	return serve, nil
}

// introduce prints what runs, and what to do with it.
func (c *devCmd) introduce(streams streams, url string, db *database) {
	workers := "none (--every 0)"
	if c.Every > 0 {
		workers = fmt.Sprintf("one is frozen past the end of its lease every %s, with locks below %s/", c.Every, devNamespace)
	}
	program, flag, where := ownCommand(), "", place(db.url)
	if db.cluster != nil {
		const private = "private, kept in %s for the next run\n            psql '%s'\n            %s check --database-url '%[2]s'"
		where = fmt.Sprintf(private, db.cluster.DataDir(), db.url, program)
	}
	if url != "http://127.0.0.1:8080" {
		flag = " --url " + url
	}
	_, _ = fmt.Fprintf(streams.out, `PostgreSQL  %s
workers     %s
dashboard   %s

Try in another terminal (Ctrl-C here ends all of this):
  %[4]s lock ls%[5]s
  %[4]s rejections%[5]s --prefix %[6]s
  %[4]s run --lock %[6]s/hello%[5]s -- echo 'one process at a time'

`, where, workers, url, program, flag, devNamespace)
	if c.Open {
		if err := openBrowser(url); err != nil {
			_, _ = fmt.Fprintf(streams.err, "fencegate: --open: %v\n", err)
		}
	}
}

// ownCommand is how another terminal runs this program: by its name if the PATH leads to it, else by its path.
func ownCommand() string {
	own, err := os.Executable()
	if err != nil {
		return "fencegate"
	}
	if found, err := exec.LookPath("fencegate"); err == nil {
		a, errA := os.Stat(found)
		b, errB := os.Stat(own)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return "fencegate"
		}
	}
	if strings.ContainsAny(own, " '\"\\$`*?[]{}()<>|&;#~!") {
		return "'" + strings.ReplaceAll(own, "'", `'\''`) + "'"
	}
	return own
}

// openBrowser starts what opens a URL on this system, and does not wait for its end.
func openBrowser(url string) error {
	command := []string{"xdg-open", url}
	switch runtime.GOOS {
	case "darwin":
		command[0] = "open"
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	browser := exec.Command(command[0], command[1:]...)
	if err := browser.Start(); err != nil {
		return err
	}
	go func() { _ = browser.Wait() }()
	return nil
}

// freezeWorkers returns nil when ctx ends, and [demo.ErrUnexpected] as soon as a stale write was stored.
func (c *devCmd) freezeWorkers(ctx context.Context, out io.Writer, url string) error {
	if c.Every > 0 {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		config := demo.Config{
			Program: program, Gateways: []string{url}, Namespace: devNamespace, Every: c.Every, Out: out,
			Shown: []string{"granted", "frozen", "written", "thawed", "rejected", "failed"},
		}
		if c.Quiet {
			config.Shown = []string{"failed"}
		}
		err = demo.Zombie{Config: config}.Run(ctx)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		_, _ = fmt.Fprintf(out, "No worker is frozen: %v\n", err)
	}
	<-ctx.Done()
	return nil
}
