//go:build unix

package faults

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

// A primary is frozen while a write waits in it, its standby is promoted, and the gateway continues there. Then the old
// primary continues, and the new one dies. The gateway must not return to the old one, and no other gateway may use it,
// until an operator accepts it.
func TestOldPrimaryReturns(t *testing.T) {
	t.Parallel()
	old := postgres.NewCluster(t)
	promoted := old.Standby()
	g := startGateway(t, postgres.FailoverURL(old, promoted)+"&connect_timeout=1",
		"--request-timeout", "3s")
	before := grantAll(t, g, "before")
	holder := mustAcquire(t, g, "held", "holder", longTTLMS)
	mustPut(t, g, numbered(holder, 1))
	promoted.CatchUp()
	oldDB := connect(t, old.URL())
	release := holdFence(t, oldDB, "held")
	inFlight := goPut(t, g, numbered(holder, 2))
	awaitPatient(t, oldDB)

	thaw := old.Freeze()
	ctx := patient(t)
	// Before that, the acquire might be sent to the old primary, which would execute it after the thaw.
	await.True(t, "the gateway notices that its database is gone", func() bool { return g.Ready(ctx) != nil })
	promoted.Promote()
	g.AwaitReady(t)
	newest := mustAcquire(t, g, "job/1", "after", longTTLMS)
	if newest.FencingToken <= newestToken(before) {
		t.Errorf("the new primary granted token %d, the old one had granted %d", newest.FencingToken, newestToken(before))
	}
	thaw()
	release()
	wantOutcome(t, (<-inFlight).err, api.OutcomeUnknown)

	promoted.Kill()
	wantWentBack(t, g)
	wantMarked(t, old.URL())
	if jumps := query[int](t, oldDB, "select jumps from fence.database_identity"); jumps != 0 {
		t.Errorf("the old primary jumped %d times: something was granted there", jumps)
	}
	if granted := query[int64](t, oldDB, "select max(granted_token) from fence.fences"); granted != holder.FencingToken {
		t.Errorf("the newest token of the old primary is %d, and it was %d", granted, holder.FencingToken)
	}

	execute(t, oldDB, "select fence.accept_database($1)", newest.FencingToken)
	g.AwaitReady(t)
	wantRising(t, g, newest.FencingToken)
}

// wantWentBack expects that the gateway finds out that its database went back, says so and changes nothing.
func wantWentBack(t *testing.T, g *gateway) {
	t.Helper()
	ctx := patient(t)
	const reason = "went back to an older state"
	await.True(t, "/readyz says that the database went back", func() bool {
		err := g.Ready(ctx)
		return err != nil && strings.Contains(err.Error(), reason)
	})
	_, err := g.Acquire(ctx, "job/2", api.AcquireRequest{OwnerID: "w"})
	wantOutcome(t, err, api.OutcomeNotApplied)
	if detail := problemOf(t, err).Detail; !strings.Contains(detail, reason) {
		t.Errorf("an acquire was answered %q, which does not say why", detail)
	}
	_, err = put(ctx, g, write{resource: "job/1", key: "k", token: 1, value: `"v"`})
	wantOutcome(t, err, api.OutcomeNotApplied)
	_, metrics := get(t, g, "/metrics")
	if strings.Contains(metrics, `fencegate_database_went_back_total{sign="timeline"} 0`) {
		t.Error("fencegate_database_went_back_total does not count the timeline that went back")
	}
}

// wantMarked expects that a Store which has seen no other database refuses this one.
func wantMarked(t *testing.T, url string) {
	t.Helper()
	fresh, err := store.Open(t.Context(), store.Config{DatabaseURL: url})
	check(t, err)
	defer fresh.Close()
	if _, err := fresh.OpenProbe(patient(t)); !errors.Is(err, store.ErrDatabaseWentBack) {
		t.Errorf("a fresh gateway at the old primary: OpenProbe returned %v, want ErrDatabaseWentBack", err)
	}
}

// A base backup is started without recovery: it has the identity of the lost primary, and lacks its last grants.
// Tokens rise all the same. A database that forgot a token in another way is found out by a client that remembers it,
// also at a gateway that was started since.
func TestBaseBackupWithoutRecovery(t *testing.T) {
	t.Parallel()
	primary := postgres.NewCluster(t)
	before := startGateway(t, primary.URL())
	kept := grantAll(t, before, "kept")
	backup := primary.Backup()
	lost := grantAll(t, before, "lost")
	check(t, before.Stop())
	primary.Kill()

	backup.Restart()
	after := startGateway(t, backup.URL())
	wantRising(t, after, newestToken(kept, lost))
	wantJumps(t, connect(t, backup.URL()), 1)
	client, err := lockclient.New(after.URL)
	check(t, err)
	defer client.Close()
	lease, err := client.Acquire(patient(t), "remembered")
	check(t, err)
	check(t, lease.Release(patient(t)))
	execute(t, connect(t, backup.URL()), "update fence.fences set granted_token = 1, last_token = 0 where resource = 'remembered'")
	check(t, after.Stop())
	execute(t, connect(t, backup.URL()), "select setval('fence.tokens', 1)")
	again := startGateway(t, backup.URL(), "--listen", strings.TrimPrefix(after.URL, "http://"))
	_, err = client.Acquire(patient(t), "remembered")
	if !errors.Is(err, lockclient.ErrUnavailable) || !strings.Contains(err.Error(), "newest_token") {
		t.Errorf("a fresh gateway, whose database forgot token %d, answered %v, want ErrUnavailable with newest_token",
			lease.FencingToken(), err)
	}
	check(t, again.Stop())
}
