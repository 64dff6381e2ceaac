package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/migrations"
)

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
