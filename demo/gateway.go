package demo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// gateway is "fencegate serve" as a process of its own.
type gateway struct {
	url string
	cmd *exec.Cmd
	log bytes.Buffer // of a process that has ended
}

// startGateway runs program with "serve" and args, and returns once it serves.
func startGateway(ctx context.Context, program string, args ...string) (*gateway, error) {
	g := &gateway{cmd: exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)}
	g.cmd.Stderr = &g.log
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the gateway: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = g.cmd.Process.Kill() })()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, url, serves := strings.Cut(line, " serves on "); serves {
		g.url = strings.TrimSpace(url)
		return g, nil
	}
	err = g.cmd.Wait()
	return nil, fmt.Errorf("the gateway ended before it served: %w\n%s", err, &g.log)
}

// stop ends the process, which finishes the requests under way.
func (g *gateway) stop() {
	if g.cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = g.cmd.Process.Kill()
	}
	_ = g.cmd.Wait()
}
