//go:build unix

package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// longTTLMS outlasts every test.
const longTTLMS = int64(time.Hour / time.Millisecond)

// mustAcquire takes a lock, for the default TTL if ttlMS is 0.
func mustAcquire(t *testing.T, g *gateway, lock, owner string, ttlMS int64) api.Lease {
	t.Helper()
	request := api.AcquireRequest{OwnerID: owner}
	if ttlMS > 0 {
		request.TTLMS = &ttlMS
	}
	lease, err := tryAcquire(patient(t), g, lock, request)
	check(t, err)
	return lease
}

// tryAcquire sends an acquire until it is answered.
func tryAcquire(ctx context.Context, g *gateway, lock string, request api.AcquireRequest) (api.Lease, error) {
	request.RequestID = new(rand.Text())
	return insist(ctx, func() (api.Lease, error) { return g.Acquire(ctx, lock, request) })
}

// retryPause leaves the processor to others while a gateway can't serve.
const retryPause = 25 * time.Millisecond

// insist sends the same again while the gateway is unavailable: after the death of a database it finds out for one
// connection after the other.
func insist[T any](ctx context.Context, send func() (T, error)) (T, error) {
	for {
		result, err := send()
		if !errors.Is(err, lockclient.ErrUnavailable) || ctx.Err() != nil {
			return result, err
		}
		time.Sleep(retryPause)
	}
}

func mustRelease(t *testing.T, g *gateway, lease api.Lease) {
	t.Helper()
	request := api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	ctx := patient(t)
	_, err := insist(ctx, func() (struct{}, error) { return struct{}{}, g.Release(ctx, lease.Lock, request) })
	check(t, err)
}

// numbered is a put under a lease, of a record of its own.
func numbered(lease api.Lease, sequence int64) spec.Op {
	return journal.Compose(journal.ByPut, spec.Op{Kind: spec.Put, Name: store.Name(lease.Lock), Owner: lease.OwnerID,
		Token: lease.FencingToken, Sequence: &sequence})
}

// put sends a write of the tests' own.
func put(ctx context.Context, g *gateway, w spec.Op) (api.WriteResult, error) {
	answer, _, err := load.Perform(ctx, g.API, w)
	return api.WriteResult{Version: answer.Version, Replayed: answer.Replayed}, err
}

type answer struct {
	result api.WriteResult
	err    error
}

// goPut sends a write once and does not wait for the answer.
func goPut(t *testing.T, g *gateway, w spec.Op) <-chan answer {
	t.Helper()
	ctx := patient(t)
	answers := make(chan answer, 1)
	go func() {
		result, err := put(ctx, g, w)
		answers <- answer{result, err}
	}()
	return answers
}

// tryPut sends a write until its outcome is known.
func tryPut(t *testing.T, g *gateway, w spec.Op) (api.WriteResult, error) {
	t.Helper()
	ctx := patient(t)
	return insist(ctx, func() (api.WriteResult, error) { return put(ctx, g, w) })
}

func mustPut(t *testing.T, g *gateway, w spec.Op) api.WriteResult {
	t.Helper()
	result, err := tryPut(t, g, w)
	check(t, err)
	return result
}

// problemOf returns what a call was refused with.
func problemOf(t *testing.T, err error) *api.Problem {
	t.Helper()
	var problem *api.Problem
	if !errors.As(err, &problem) {
		t.Fatalf("it is no refusal: %v", err)
	}
	return problem
}

// wantUnanswered expects that the connection was cut, and that the client makes no guess of what happened.
func wantUnanswered(t *testing.T, got answer) {
	t.Helper()
	wantOutcome(t, got.err, api.OutcomeUnknown)
	var failed *lockclient.Error
	if errors.As(got.err, &failed) && failed.Cause == nil {
		t.Fatalf("it was answered: %v", got.err)
	}
}

func wantOutcome(t *testing.T, err error, want api.Outcome) {
	t.Helper()
	if !errors.Is(err, lockclient.ErrUnavailable) || problemOf(t, err).Outcome != want {
		t.Fatalf("it is not unavailable with the outcome %s, but: %v", want, err)
	}
}

// wantStale expects a write to be rejected because a newer token was granted.
func wantStale(t *testing.T, g *gateway, w spec.Op) {
	t.Helper()
	_, err := tryPut(t, g, w)
	if !errors.Is(err, lockclient.ErrTokenStale) || problemOf(t, err).Reason != "superseded" {
		t.Fatalf("it was not superseded, but: %v", err)
	}
}

// wantWrites expects so many records of a resource, and that the fence has counted as many writes.
func wantWrites(t *testing.T, db *pgxpool.Pool, resource string, want int) {
	t.Helper()
	records := query[int](t, db, "select count(*) from fence.records where resource = $1", resource)
	counted := query[int](t, db, "select last_version from fence.fences where resource = $1", resource)
	if records != want || counted != want {
		t.Errorf("there are %d records, and %d writes were counted, of %s; want %d", records, counted, resource, want)
	}
}

// wantUnknown expects a write to be rejected because the database has no grant of its token.
func wantUnknown(t *testing.T, g *gateway, w spec.Op) {
	t.Helper()
	if _, err := tryPut(t, g, w); !errors.Is(err, lockclient.ErrTokenUnknown) {
		t.Errorf("%s: before the next grant, the lost token %d got %v", w.Name, w.Token, err)
	}
}

var duration = flag.Duration("faults.duration", 2*time.Second, "how long each load lasts, at least")

func TestMain(m *testing.M) {
	flag.Parse()
	// As many at once as there are processors, or -parallel says: each test keeps a processor busy.
	if err := flag.Set("test.parallel", flag.Lookup("test.parallel").Value.String()); err != nil {
		panic(err)
	}
	os.Exit(postgres.Main(m))
}

// patient is a context that ends long after everything should have happened.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), *duration+await.Limit)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSlow_Drill loses a database under load, and restores it by the commands of docs/backup.md. What was acknowledged
// up to the recovery point is there, tokens rise, zombies are rejected, and the tables are protected. `make drill` shows
// how long each step took.
func TestSlow_Drill(t *testing.T) {
	t.Run("base backup and WAL", func(t *testing.T) {
		d := newDrill(t)
		d.begin(postgres.NewCluster(t, d.settings()...))
		d.run("pg_basebackup")
		d.step("the base backup is made")
		d.load.progress(t, 200)
		d.recoveryPoint = d.load.journal.Now()
		db := connect(t, d.cluster.URL())
		segment := query[string](t, db, "select pg_walfile_name(pg_switch_wal())")
		await.True(t, "the segment is archived", func() bool {
			return query[bool](t, db, "select coalesce(last_archived_wal >= $1, false) from pg_stat_archiver", segment)
		})
		db.Close()
		d.step("the last segment of the WAL is archived: the recovery point")
		d.destroy()
		restored := postgres.Unmade(t)
		d.run("recovery.signal", "PGDATA="+restored.Path())
		d.step("the base backup is copied back")
		restored.Restart()
		d.step("PostgreSQL has replayed the WAL")
		d.end(restored)
	})
	t.Run("dump", func(t *testing.T) {
		postgres.RequireDump(t, "pg_restore")
		d := newDrill(t)
		d.begin(postgres.NewCluster(t))
		d.recoveryPoint = d.load.journal.Now()
		d.run("pg_dump ")
		d.step("the dump is made, of the moment at which it began: the recovery point")
		d.destroy()
		restored := postgres.NewCluster(t, postgres.Stranger())
		server := connect(t, restored.DatabaseURL("postgres"))
		execute(t, server, "drop database fencegate")
		server.Close()
		d.run("pg_restore ", "SERVER_URL="+restored.DatabaseURL("postgres"))
		d.step("the dump is restored into a new server")
		d.end(restored)
	})
}

// drill is a database with a load, of which a backup is made.
type drill struct {
	t       *testing.T
	dir     string
	page    string // docs/backup.md, with dir in place of /backup
	begun   time.Time
	cluster *postgres.Cluster
	fleet   *fleet
	load    *underLoad

	recoveryPoint int64     // in the journal: what was answered before must be restored
	zombie        api.Lease // was replaced before the recovery point
	early, lost   api.Lease // was replaced after it, by the other
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "backup.md"))
	check(t, err)
	dir, err := os.MkdirTemp(process.TempParent(), "fencegate-drill-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Mkdir(filepath.Join(dir, "wal"), 0o700))
	for _, path := range []string{dir, filepath.Join(dir, "wal")} {
		check(t, os.Chmod(path, 0o777)) // PostgreSQL may run as another user
	}
	check(t, os.Symlink(process.BuildChecked(t), filepath.Join(dir, "fencegate")))
	return &drill{t: t, dir: dir, page: strings.ReplaceAll(string(page), "/backup", dir), begun: time.Now()}
}

// block returns the block of the page that has this text.
func (d *drill) block(text string) string {
	d.t.Helper()
	for _, block := range regexp.MustCompile("(?s)\n```(?:sh|text)\n(.*?\n)```\n").FindAllStringSubmatch(d.page, -1) {
		if strings.Contains(block[1], text) {
			return block[1]
		}
	}
	d.t.Fatalf("docs/backup.md has no block with %q", text)
	return ""
}

// settings are those of the page by which the WAL is archived.
func (d *drill) settings() (options []postgres.Option) {
	d.t.Helper()
	for line := range strings.Lines(d.block("archive_command")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		options = append(options, postgres.Setting(name, strings.Trim(value, "'")))
	}
	return options
}

// run runs the commands of the page that have this text, and returns what they print.
func (d *drill) run(text string, env ...string) string {
	d.t.Helper()
	return d.shell(d.block(text), env...)
}

func (d *drill) shell(commands string, env ...string) string {
	d.t.Helper()
	shell := exec.CommandContext(patient(d.t), "bash", "-euo", "pipefail", "-c", commands)
	path := []string{d.dir, filepath.Dir(postgres.Require(d.t, "pg_basebackup")), os.Getenv("PATH")}
	shell.Env = append(os.Environ(), "PATH="+strings.Join(path, ":"), "DATABASE_URL="+d.cluster.URL())
	shell.Env = append(shell.Env, env...)
	output, err := shell.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", commands, err, output)
	}
	return string(output)
}

func (d *drill) step(what string) {
	d.t.Helper()
	d.load.acks, _ = d.load.progressed() // from here on, progress counts anew
	d.t.Logf("%5.1f s  %5d writes acknowledged  %s", time.Since(d.begun).Seconds(), d.load.acks, what)
}

// begin starts gateways and their clients, and returns when a holder has been replaced and does not know it.
func (d *drill) begin(cluster *postgres.Cluster) {
	d.t.Helper()
	d.cluster = cluster
	d.fleet = startFleet(d.t, cluster.URL(), 2)
	d.fleet.databaseCrashes, d.fleet.losesCommits = true, true
	db := connect(d.t, cluster.URL())
	execute(d.t, db, "create role app login")
	execute(d.t, db, `create table accounts (id bigint primary key, balance bigint); insert into accounts values (1, 100);
		select fence.protect('accounts', 'accounts/{id}'); grant select, insert, update on accounts to app`)
	db.Close()
	d.shell(`fencegate migrate --app-role app --database-url "$DATABASE_URL"`)
	d.begun = time.Now()
	d.load = startLoad(d.t, d.fleet)
	d.zombie = mustAcquire(d.t, d.fleet.at(0), "accounts/1", "zombie", 100)
	d.early = mustAcquire(d.t, d.fleet.at(0), "lost", "early", 100)
	_, err := tryAcquire(patient(d.t), d.fleet.at(1), "accounts/1", api.AcquireRequest{OwnerID: "next", WaitMS: 60_000})
	check(d.t, err)
	d.load.progress(d.t, 200)
	d.step("2 gateways are under load; a holder was replaced and does not know it")
}

// destroy loses all that the cluster has.
func (d *drill) destroy() {
	d.t.Helper()
	var err error
	d.lost, err = tryAcquire(patient(d.t), d.fleet.at(0), "lost", api.AcquireRequest{OwnerID: "holder", WaitMS: 60_000})
	check(d.t, err)
	d.load.progress(d.t, 40)
	d.cluster.Discard()
	d.step("the server is killed, and its files are deleted")
}

// end starts gateways before the restored database, and checks what it has.
func (d *drill) end(restored *postgres.Cluster) {
	d.t.Helper()
	d.cluster, d.fleet.databaseURL = restored, restored.URL()
	for i := range d.fleet.members {
		d.fleet.crash(d.t, i)
	}
	d.step("the gateways are ready")
	d.load.journal.Lost(d.recoveryPoint)
	for _, line := range strings.Split(d.run("fencegate check"), "\n") {
		if strings.Contains(line, "errors: ") || strings.Contains(line, "tokens ") {
			d.step("fencegate check --rows: " + line)
		}
	}

	wantStale(d.t, d.fleet.at(0), numbered(d.zombie, 2))
	d.step("the write of the holder that was replaced is rejected: token_stale")
	wantUnknown(d.t, d.fleet.at(1), numbered(d.lost, 1))
	d.step("the write of a holder whose grant is lost is rejected: token_unknown")
	mustPut(d.t, d.fleet.at(1), numbered(d.early, 1))
	d.step("the write of the holder before it is admitted")
	if next := mustAcquire(d.t, d.fleet.at(0), "lost", "next", 0); next.FencingToken <= d.lost.FencingToken {
		d.t.Errorf("token %d was granted after the lost %d", next.FencingToken, d.lost.FencingToken)
	}
	wantStale(d.t, d.fleet.at(1), numbered(d.lost, 1))
	wantStale(d.t, d.fleet.at(1), numbered(d.early, 2))
	d.step("after the next grant, both are rejected: token_stale")
	db := connect(d.t, restored.URL())
	d.wantProtected(db)

	d.load.progress(d.t, 200)
	d.load.end(d.t)
	found, err := d.load.journal.Check(patient(d.t), db, "faults/")
	check(d.t, err)
	report(d.t, found)
	cost, err := d.load.journal.Cost(patient(d.t), db)
	check(d.t, err)
	if !d.t.Failed() {
		d.step(fmt.Sprintf("clients work; lost are %d writes that were acknowledged after the recovery point, and no others",
			cost.Lost))
	}
}

// wantProtected expects that the role of an application is rejected without a token, and may ask for admission.
func (d *drill) wantProtected(db *pgxpool.Pool) {
	d.t.Helper()
	for sql, want := range map[string]string{
		"update accounts set balance = 0":                                          "LF101",
		fmt.Sprintf("select fence.guard('accounts/1', %d)", d.zombie.FencingToken): "LF103",
	} {
		_, err := db.Exec(patient(d.t), "set role app; "+sql)
		if err == nil || !strings.Contains(err.Error(), want) {
			d.t.Errorf("%s: the role app got %v, want %s", sql, err, want)
		}
	}
}
