package sdk

import (
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

func TestSession(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	session, err := client.NewSession(ctx, lockclient.WithTTL(6*time.Second), lockclient.WithLeaseOwner("worker"),
		lockclient.WithMetadata(map[string]int{"pod": 1}))
	check(t, err)
	info := session.Info()
	if session.Owner() != "worker" || session.ID() == "" || info.TTLMS != 6000 || session.ExpiresIn() <= 0 {
		t.Errorf("the session is %+v", info)
	}
	one, err := session.Acquire(ctx, lock+"/1")
	check(t, err)
	two, err := client.Acquire(ctx, lock+"/2", lockclient.InSession(session), lockclient.WithLeaseOwner("ignored"))
	check(t, err)
	if one.Owner() != "worker" || two.Owner() != "worker" || one.ExpiresIn() > 6*time.Second {
		t.Errorf("its leases are %+v and %+v", one.Info(), two.Info())
	}
	wantErr(t, "Renew", one.Renew(ctx), lockclient.ErrInvalidRequest)
	await.True(t, "heartbeats that carry both leases over the TTL", func() bool {
		state, err := client.API().Session(ctx, session.ID())
		return err == nil && state.ExpiresAt.After(info.ExpiresAt.Add(7*time.Second)) && *state.Leases == 2
	})
	for what, err := range map[string]error{
		"the session": session.Err(), "lease 1": one.Err(), "lease 2": two.Err(),
		"the heartbeat": session.HeartbeatErr(), "lease 1's heartbeat": one.HeartbeatErr(),
	} {
		if err != nil {
			t.Errorf("%s has the error %v", what, err)
		}
	}
	check(t, one.Release(ctx))
	check(t, second(two.Put(ctx, "k", nil)))
	check(t, session.Close(ctx))
	check(t, session.Close(ctx))
	wantErr(t, "the session", causeOf(t, "the session", session.Context()), lockclient.ErrLeaseReleased)
	wantErr(t, "the lease", causeOf(t, "the lease", two.Context()), lockclient.ErrLeaseReleased)
	wantErr(t, "Err of the lease", two.Err(), lockclient.ErrLeaseReleased)
	wantFree(t, client, lock+"/2")
	_, err = session.Acquire(ctx, lock+"/3")
	if !errors.Is(err, lockclient.ErrLeaseLost) && !errors.Is(err, lockclient.ErrLeaseReleased) {
		t.Errorf("Acquire in a closed session returned %v", err)
	}
}

// The leases of a session are lost with it.
func TestLostSession(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	failures := make(chan error, 10)
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Hour),
		lockclient.HeartbeatEvery(20*time.Millisecond),
		lockclient.OnHeartbeatError(func(err error) { failures <- err }))
	check(t, err)
	lease, err := session.Acquire(ctx, lock)
	check(t, err)
	check(t, second(client.API().EndSession(ctx, session.ID())))
	wantErr(t, "the cause", causeOf(t, "the lease", lease.Context()), lockclient.ErrLeaseLost)
	wantErr(t, "Err of the context", lease.Context().Err(), lockclient.ErrLeaseLost)
	wantErr(t, "OnHeartbeatError", await.Receive(t, "a failed heartbeat", failures), lockclient.ErrLeaseLost)
	wantErr(t, "Acquire", second(session.Acquire(ctx, lock)), lockclient.ErrLeaseLost)
	wantErr(t, "Put", second(lease.Put(ctx, "k", nil)), lockclient.ErrTokenStale)
}
