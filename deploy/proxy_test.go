package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/program"
	"github.com/fencegate/fencegate/lockclient"
)

// proxied is the proxy of docker-compose.yml, as it is but for addresses, before real gateways.
func proxied(t *testing.T, gateways []*gatewayprocess.Process) string {
	t.Helper()
	haproxy, err := exec.LookPath("/usr/sbin/haproxy") // Debian has it where only root's PATH looks
	if err != nil {
		haproxy = pgtest.Require(t, "haproxy")
	}
	config := read(t, "haproxy/haproxy.cfg")
	address := freeAddress(t)
	replaced := strings.Replace(config, "bind :8080", "bind "+address, 1)
	for i, gateway := range gateways {
		name := fmt.Sprintf("gateway-%d:8080", i+1)
		if !strings.Contains(replaced, name) {
			t.Fatalf("haproxy.cfg has no %s", name)
		}
		replaced = strings.Replace(replaced, name, strings.TrimPrefix(gateway.URL, "http://"), 1)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	check(t, os.WriteFile(path, []byte(replaced), 0o600))
	start(t, haproxy, "-db", "-f", path)
	url := "http://" + address
	client := clientOf(t, url)
	await.True(t, "the proxy has a gateway that is ready", func() bool { return client.API().Ready(t.Context()) == nil })
	return url
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// start runs a program until the test ends; what it says is shown if the test fails.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = &said, &said
	check(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		killed := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		killed.Stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(program), &said)
		}
	})
}

func clientOf(t *testing.T, url string) *lockclient.Client {
	t.Helper()
	client, err := lockclient.New(url, lockclient.WithOwner("test"))
	check(t, err)
	t.Cleanup(client.Close)
	return client
}

// Through the proxy everything works that works without: writes that are confirmed while more are sent, events as they happen, waiters who
// leave the line when they go away, zombies that are shut out, and a gateway that is killed.
func TestProxy(t *testing.T) {
	t.Parallel()
	all := gateways(t, 2)
	url := proxied(t, all)
	client := clientOf(t, url)

	t.Run("events come as they happen", func(t *testing.T) { eventsPass(t, client) })
	t.Run("writes are confirmed while more are sent", func(t *testing.T) { pipelinePasses(t, client) })
	t.Run("who goes away leaves the line", func(t *testing.T) { goneLeaves(t, client) })
	t.Run("zombies as in the demo", func(t *testing.T) { demoRuns(t, client, url) })
	t.Run("a gateway is killed", func(t *testing.T) {
		all[0].Kill()
		await.True(t, "twenty in a row are answered", func() bool {
			for range 20 {
				if client.API().Ready(t.Context()) != nil {
					return false
				}
			}
			return true
		})
	})
}

func eventsPass(t *testing.T, client *lockclient.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	watch, err := client.Watch(ctx, "proxy/watched")
	check(t, err)
	defer watch.Close()
	if _, err := watch.Next(ctx); err != nil { // how it stands
		t.Fatal(err)
	}
	lease, err := client.Acquire(ctx, "proxy/watched")
	check(t, err)
	defer lease.ReleaseOnce()
	event, err := watch.Next(ctx)
	if err != nil || event.Kind != api.EventGranted {
		t.Errorf("the watch tells %+v, %v, want granted", event, err)
	}
}

func pipelinePasses(t *testing.T, client *lockclient.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	lease, err := client.Acquire(ctx, "proxy/pipeline")
	check(t, err)
	defer lease.ReleaseOnce()
	// With a window of 1 each write waits for the verdict on the one before, on one request.
	pipeline, err := lease.Pipeline(ctx, lockclient.PipelineWindow(1))
	check(t, err)
	for i := range 20 {
		_, err := pipeline.Put(ctx, fmt.Sprint("rows/", i), []byte("x"))
		check(t, err)
	}
	check(t, pipeline.Close())
}

func goneLeaves(t *testing.T, client *lockclient.Client) {
	lease, err := client.Acquire(t.Context(), "proxy/line", lockclient.WithTTL(time.Hour))
	check(t, err)
	defer lease.ReleaseOnce()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		wait := int64(60_000)
		_, err := client.API().Acquire(ctx, "proxy/line", api.AcquireRequest{OwnerID: "waiter", WaitMS: wait})
		left <- err
	}()
	queued := func(n int) func() bool {
		return func() bool {
			lock, err := client.API().Lock(t.Context(), "proxy/line")
			return err == nil && len(lock.Queue) == n
		}
	}
	await.True(t, "the waiter stands in line", queued(1))
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter was told %v", err)
	}
	await.True(t, "the waiter has left the line", queued(0))
}

// demoRuns runs what the profile demo runs, once.
func demoRuns(t *testing.T, client *lockclient.Client, url string) {
	args := append([]string(nil), composed(t).Services["zombies"].Command...)
	for i := range args {
		args[i] = regexp.MustCompile(`^http://proxy:8080$`).ReplaceAllString(args[i], url)
	}
	command := exec.CommandContext(t.Context(), program.Path(t), append(args, "--rounds", "1")...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("fencegate %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	await.True(t, "the rejection is shown", func() bool {
		rejections, err := client.API().Rejections(t.Context(), lockclient.RejectionsQuery{Code: api.CodeTokenStale})
		return err == nil && len(rejections.Rejections) > 0
	})
}
