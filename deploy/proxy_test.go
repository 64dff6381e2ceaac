package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/migrations"
)

// proxied starts the proxy of docker-compose.yml before gateways. Only addresses differ, and what is given as pairs of
// old and new text.
func proxied(t *testing.T, gateways []*gateway.Process, changes ...string) string {
	t.Helper()
	address := network.FreeAddress(t)
	config := replace(t, withGateways(t, "haproxy/haproxy.cfg", gateways), "bind :8080", "bind "+address)
	for change := range slices.Chunk(changes, 2) {
		config = replace(t, config, change[0], change[1])
	}
	startProxy(t, config)
	url := "http://" + address
	client := clientOf(t, url)
	await.True(t, "the proxy has a gateway that is ready", func() bool { return client.API().Ready(t.Context()) == nil })
	return url
}

// startProxy runs HAProxy with a configuration until the test ends, or the returned function is called.
func startProxy(t *testing.T, config string) (stop func()) {
	t.Helper()
	haproxy, err := exec.LookPath("/usr/sbin/haproxy") // Debian has it where only root's PATH looks
	if err != nil {
		haproxy = postgres.Require(t, "haproxy")
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	check(t, os.WriteFile(path, []byte(config), 0o600))
	return start(t, haproxy, "-db", "-f", path)
}

// start runs a program until the test ends, or the returned function is called. If the test fails, its output is shown.
func start(t *testing.T, program string, args ...string) (stop func()) {
	t.Helper()
	var output bytes.Buffer
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = &output, &output
	check(t, command.Start())
	stop = sync.OnceFunc(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		killed := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		killed.Stop()
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("the output of %s:\n%s", filepath.Base(program), &output)
		}
	})
	return stop
}

func clientOf(t *testing.T, url string) *lockclient.Client {
	t.Helper()
	client, err := lockclient.New(url, lockclient.WithOwner("test"))
	check(t, err)
	t.Cleanup(client.Close)
	return client
}

// TestProxy checks that everything works through the proxy: arrays of writes, events, waiters that leave the queue when
// they disconnect, zombies that are rejected, and a gateway that is killed.
func TestProxy(t *testing.T) {
	t.Parallel()
	all := gateways(t, 2)
	url := proxied(t, all)
	client := clientOf(t, url)

	t.Run("events come as they happen", func(t *testing.T) { eventsPass(t, client) })
	t.Run("many writes", func(t *testing.T) { arraysPass(t, client) })
	t.Run("a waiter that disconnects leaves the queue", func(t *testing.T) { disconnectedWaiterLeaves(t, client) })
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
	if _, err := watch.Next(ctx); err != nil { // the state
		t.Fatal(err)
	}
	lease, err := client.Acquire(ctx, "proxy/watched")
	check(t, err)
	defer lease.ReleaseOnce()
	state, err := watch.Next(ctx)
	if err != nil || state.State != "held" {
		t.Errorf("the watch got %+v, %v, want held", state, err)
	}
}

func arraysPass(t *testing.T, client *lockclient.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	lease, err := client.Acquire(ctx, "proxy/writes")
	check(t, err)
	defer lease.ReleaseOnce()
	value := strconv.Quote(strings.Repeat("x", 2<<10))
	writes := slices.Repeat([]api.BulkWrite{{Op: "put", Key: "k", Value: []byte(value)}}, api.BulkWritesMax)
	for _, outcome := range lease.Writes(ctx, writes) {
		check(t, outcome.Err)
	}
}

func disconnectedWaiterLeaves(t *testing.T, client *lockclient.Client) {
	lease, err := client.Acquire(t.Context(), "proxy/queue", lockclient.WithTTL(time.Hour))
	check(t, err)
	defer lease.ReleaseOnce()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := client.API().Acquire(ctx, "proxy/queue", api.AcquireRequest{OwnerID: "waiter", WaitMS: 60_000})
		left <- err
	}()
	queued := func(n int) func() bool {
		return func() bool {
			lock, err := client.API().Lock(t.Context(), "proxy/queue")
			return err == nil && len(lock.Queue) == n
		}
	}
	await.True(t, "the waiter is in the queue", queued(1))
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter got %v", err)
	}
	await.True(t, "the waiter has left the queue", queued(0))
}

// demoRuns runs the command of the profile demo once.
func demoRuns(t *testing.T, client *lockclient.Client, url string) {
	args := slices.Concat(composed(t, "zombies").Command, []string{"--rounds", "1"})
	if i := slices.Index(args, "http://proxy:8080"); i >= 0 {
		args[i] = url
	}
	command := exec.CommandContext(t.Context(), process.Build(t), args...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("fencegate %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	await.True(t, "the rejection is shown", func() bool {
		rejections, err := admin.New(client).Rejections(t.Context(), admin.RejectionsQuery{Code: api.CodeTokenStale})
		return err == nil && len(rejections.Rejections) > 0
	})
}

// TestProxyReplacesForwardedFor checks that a client can't forge its address: the proxy, which the gateway trusts,
// removes what the client has written.
func TestProxyReplacesForwardedFor(t *testing.T) {
	t.Parallel()
	served := gateway.Serve(t, postgres.Migrated(t), "--trusted-proxies", "127.0.0.1")
	url := proxied(t, []*gateway.Process{served, served})
	forging, err := lockclient.New(url, lockclient.WithHeaders(func(_ context.Context, header http.Header) {
		header.Add("X-Forwarded-For", "203.0.113.9")
		header.Add("X-Forwarded-For", "203.0.113.10, 127.0.0.1")
	}))
	check(t, err)
	defer forging.Close()
	_, err = forging.API().Put(t.Context(), "forged", "k", lockclient.Write{Token: api.FencingToken{Token: 1}})
	if !errors.Is(err, lockclient.ErrTokenUnknown) {
		t.Errorf("the write returned %v, expected token_unknown", err)
	}
	await.True(t, "the rejection is recorded", func() bool {
		rejections, err := admin.New(forging).Rejections(t.Context(), admin.RejectionsQuery{Resource: "forged"})
		if err != nil || len(rejections.Rejections) == 0 {
			return false
		}
		if got := rejections.Rejections[0].Address; got != "127.0.0.1" {
			t.Errorf("the rejection names the address %s, expected that of the connection, 127.0.0.1", got)
		}
		return true
	})
}

// TestSlow_UpgradeBehindProxy checks that clients, which repeat nothing, see no error and lose no write while gateways are
// replaced one after the other by those of the next version, the schema is migrated between, and the gateways are
// replaced by those of this version again.
func TestSlow_UpgradeBehindProxy(t *testing.T) {
	t.Parallel()
	database, this, next := postgres.Migrated(t), process.Build(t), process.BuildWith(t, gateway.NextVersion(t))
	addresses := []string{network.FreeAddress(t), network.FreeAddress(t)}
	startAt := func(index int, program string, args ...string) *gateway.Process {
		return gateway.ServeBy(t, program, database,
			append([]string{"--drain-delay", "1s", "--listen", addresses[index]}, args...)...)
	}
	all := []*gateway.Process{startAt(0, this), startAt(1, this)}
	_, expectService, stop := busy(t, all, 16)
	replace := func(index int, program, step string, args ...string) {
		check(t, all[index].Stop())
		all[index] = startAt(index, program, args...)
		expectService(step)
	}
	migrate := func(program, want, step string) {
		out := command(t, program, "migrate", "--database-url", database)
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: it wrote %q, want %q", step, out, want)
		}
		expectService(step)
	}
	expectService("both gateways are of this version, as the schema")
	replace(0, next, "the next version serves on the schema of this version", "--no-migrate")
	migrate(next, fmt.Sprintf("functions revision %d; before: schema version", migrations.GuardRevision+1), "this version serves on the schema of the next version")
	replace(1, next, "both gateways are of the next version, as the schema")
	replace(0, this, "this version starts on the schema of the next version")
	migrate(this, "nothing was changed: a newer fencegate", "this version migrates nothing")
	replace(1, this, "both gateways are of this version again")
	stop()
}

// busy has clients, which repeat nothing, call gateways through the proxy until stop. expectService waits until they get
// on, by each of the gateways.
func busy(t *testing.T, all []*gateway.Process, clients int) (url string, expectService func(step string), stop func()) {
	t.Helper()
	url = proxied(t, all, "inter 2s fastinter 500ms", "inter 100ms fastinter 100ms", "timeout connect 2s",
		"timeout connect 2s\n    timeout check 10s") // a slow answer to a check is no end of the gateway
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	var calls atomic.Int64
	for n := range clients {
		client := clientOf(t, url)
		working.Go(func() {
			if err := callOn(ctx, client.API(), fmt.Sprintf("drain/%d", n), &calls); ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	stop = func() {
		cancel()
		working.Wait()
	}
	t.Cleanup(stop)
	begun := time.Now()
	return url, func(step string) {
		for _, gateway := range all {
			before := grants(t, gateway)
			await.True(t, "clients get on, by each gateway: "+step, func() bool { return grants(t, gateway) > before+20 })
		}
		t.Logf("%5.1f s  %5d calls  %s", time.Since(begun).Seconds(), calls.Load(), step)
	}, stop
}

// grants returns how many leases a gateway has granted.
func grants(t *testing.T, gateway *gateway.Process) (count int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gateway.URL+"/metrics", http.NoBody)
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	_, rest, _ := strings.Cut(string(text), `fencegate_lease_operations_total{mode="exclusive",operation="acquire",result="ok"} `)
	_, _ = fmt.Sscan(rest, &count)
	return count
}

// callOn acquires, writes, reads and releases until ctx ends or a call fails.
func callOn(ctx context.Context, calls *lockclient.API, lock string, count *atomic.Int64) error {
	for n := 0; ; n++ {
		lease, err := calls.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "worker", RequestID: new(strconv.Itoa(n))})
		if err != nil {
			return err
		}
		number := api.FencingToken{Token: lease.FencingToken, Sequence: new(int64(1))}
		value := strconv.Itoa(n)
		_, putErr := calls.Put(ctx, lock, "k", lockclient.Write{Token: number, Value: []byte(value)})
		record, getErr := calls.Get(ctx, lock, "k")
		if putErr == nil && getErr == nil && string(record.Value) != value {
			return fmt.Errorf("%s was written and acknowledged, and %s is read", value, record.Value)
		}
		releaseErr := calls.Release(ctx, lock, api.ReleaseRequest{OwnerID: "worker", LeaseID: lease.LeaseID,
			FencingToken: lease.FencingToken})
		if err := errors.Join(putErr, getErr, releaseErr); err != nil {
			return err
		}
		count.Add(4)
	}
}

// TestDrainBehindProxy checks that clients, which repeat nothing, see no error while one of two gateways is drained, a
// waiter moves to the other one, and that the gateway gets requests again after the drain.
func TestDrainBehindProxy(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	all := []*gateway.Process{
		gateway.Serve(t, database, "--drain-delay", "1s"), gateway.Serve(t, database, "--drain-delay", "1s"),
	}
	url, expectService, stop := busy(t, all, 8)
	expectService("before the drain")
	held, err := clientOf(t, url).Acquire(t.Context(), "waited", lockclient.WithTTL(time.Hour))
	check(t, err)
	granted := make(chan error, 1)
	waiting, err := lockclient.New(all[0].URL, lockclient.WithOwner("waiter"), lockclient.WithFailover(url))
	check(t, err)
	defer waiting.Close()
	go func() {
		_, err := waiting.Acquire(t.Context(), "waited", lockclient.WithWait(time.Minute))
		granted <- err
	}()
	state := func(of int) string {
		return string(command(t, process.Build(t), "lock", "get", "waited", "--url", all[of].URL))
	}
	await.True(t, "it waits", func() bool { return strings.Contains(state(0), "waiter") })
	command(t, process.Build(t), "drain", "--url", all[0].URL)
	await.True(t, "it waits elsewhere", func() bool { return strings.Contains(state(1), "waiter") })
	held.ReleaseOnce()
	check(t, <-granted)
	command(t, process.Build(t), "drain", "--undo", "--url", all[0].URL)
	expectService("after the drain")
	stop()
}

// command runs a command as an operator does, and logs both: go test -v shows the transcript.
func command(t *testing.T, line ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	run := exec.CommandContext(t.Context(), line[0], line[1:]...)
	run.Stdout, run.Stderr = &out, &errs
	if err := run.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(line, " "), err, &out, &errs)
	}
	t.Logf("$ %s\n%s", strings.Join(line, " "), &out)
	return out.Bytes()
}
