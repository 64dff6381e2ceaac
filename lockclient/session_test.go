package lockclient_test

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

func TestASessionHoldsManyLeases(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	session, err := client.NewSession(ctx, lockclient.WithTTL(3*time.Second), lockclient.WithLeaseOwner("worker"), lockclient.WithMetadata(map[string]int{"pod": 1}))
	check(t, err)
	if session.Owner() != "worker" || session.ID() == "" || session.Info().TTLMS != 3000 || session.ExpiresIn() <= 0 || !session.Valid() {
		t.Errorf("got %+v", session.Info())
	}
	one, err := session.Acquire(ctx, lock+"/1")
	check(t, err)
	two, err := client.Acquire(ctx, lock+"/2", lockclient.InSession(session), lockclient.WithLeaseOwner("ignored"))
	check(t, err)
	if one.Owner() != "worker" || two.Owner() != "worker" || one.ExpiresIn() > session.Info().ExpiresAt.Sub(session.Info().CreatedAt.Time) {
		t.Errorf("got %+v and %+v", one.Info(), two.Info())
	}
	if err := one.Renew(ctx); !errors.Is(err, lockclient.ErrInvalidRequest) {
		t.Errorf("renew: %v", err)
	}
	two.StartHeartbeat() // does nothing
	// The one heartbeat carries both over the TTL.
	granted := session.Info().ExpiresAt
	eventually(t, func() bool {
		state, err := client.API().Session(ctx, session.ID())
		return err == nil && state.ExpiresAt.After(granted.Add(4*time.Second)) && *state.Leases == 2
	})
	if session.Err() != nil || one.Err() != nil || two.Err() != nil || session.HeartbeatErr() != nil || one.HeartbeatErr() != nil {
		t.Errorf("lost: %v, %v, %v, %v", session.Err(), one.Err(), two.Err(), session.HeartbeatErr())
	}
	check(t, one.Release(ctx))
	if _, err := two.Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
	check(t, session.Close(ctx))
	check(t, session.Close(ctx))
	for what, cause := range map[string]error{"session": done(t, session.Context()), "lease": done(t, two.Context()), "err": two.Err()} {
		if !errors.Is(cause, lockclient.ErrLeaseReleased) {
			t.Errorf("the %s ended by %v", what, cause)
		}
	}
	wantFree(t, client, lock+"/2")
	if _, err := session.Acquire(ctx, lock+"/3"); !errors.Is(err, lockclient.ErrLeaseLost) && !errors.Is(err, lockclient.ErrLeaseReleased) {
		t.Errorf("acquire: %v", err)
	}
}

// A session that is lost takes all that hangs on it along.
func TestALostSession(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	var mu sync.Mutex
	var told error
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Hour), lockclient.WithHeartbeat(
		lockclient.HeartbeatEvery(20*time.Millisecond),
		lockclient.OnHeartbeatError(func(err error) { mu.Lock(); told = err; mu.Unlock() })))
	check(t, err)
	lease, err := session.Acquire(ctx, lock)
	check(t, err)
	_, err = client.API().EndSession(ctx, session.ID())
	check(t, err)
	if cause := done(t, lease.Context()); !errors.Is(cause, lockclient.ErrLeaseLost) || !errors.Is(lease.Context().Err(), lockclient.ErrLeaseLost) {
		t.Errorf("the cause is %v", cause)
	}
	eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return errors.Is(told, lockclient.ErrLeaseLost) })
	if _, err := session.Acquire(ctx, lock); !errors.Is(err, lockclient.ErrLeaseLost) {
		t.Errorf("acquire: %v", err)
	}
	if _, err := lease.Put(ctx, "k", nil); !errors.Is(err, lockclient.ErrTokenStale) {
		t.Errorf("put: %v", err)
	}
}

// The window of a session ends without an answer, and with it that of its leases, for whoever looks at them.
func TestASessionOutlivesItsGateway(t *testing.T) {
	first, second, client := pair(t)
	ctx := patient(t)
	session, err := client.NewSession(ctx, lockclient.WithTTL(5*time.Second), lockclient.WithHeartbeat(lockclient.HeartbeatEvery(50*time.Millisecond)))
	check(t, err)
	lease, err := session.Acquire(ctx, "job")
	check(t, err)
	first.Kill()
	if _, err := lease.Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
	granted := session.Info().ExpiresAt
	eventually(t, func() bool {
		state, err := client.API().Session(ctx, session.ID())
		return err == nil && state.ExpiresAt.After(granted.Add(time.Second))
	})
	check(t, lease.Err())
	check(t, second.Signal(syscall.SIGSTOP))
	cause := done(t, lease.Context())
	check(t, second.Signal(syscall.SIGCONT))
	if !errors.Is(cause, lockclient.ErrLeaseLost) || !errors.Is(session.Err(), lockclient.ErrLeaseLost) {
		t.Errorf("the causes are %v, %v", cause, session.Err())
	}
}
