package lockclient

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Session is one TTL and one heartbeat for any number of leases. It is safe for concurrent use. It is renewed in the
// background until it ends: by Close, by its loss, or with its client. All its leases end with it.
type Session struct {
	client    *Client
	granted   api.Session
	validity  *validity
	heartbeat heartbeat
	loss      loss
}

// NewSession creates a session, and renews it. WithTTL, WithMetadata, WithLeaseOwner, HeartbeatEvery and OnHeartbeatError
// are its options.
// It returns ErrUnavailable if no gateway could serve, and ErrClosed if the client is closed.
func (c *Client) NewSession(ctx context.Context, opts ...LeaseOption) (*Session, error) {
	const op = "create session"
	config := c.leaseConfig(opts)
	if err := config.check(op); err != nil {
		return nil, err
	}
	if config.mode != "" || config.scope != "" || config.wait != 0 || config.session != nil || config.beat.off {
		return nil, refused(op, api.CodeInvalidRequest,
			"Shared, Subtree, WithWait, InSession and WithoutHeartbeat are options of a lease, not of a session")
	}
	metadata, err := optionalJSON(op, "metadata", config.metadata)
	if err != nil {
		return nil, err
	}
	if err := c.background.open(); err != nil {
		return nil, err
	}
	body := api.SessionRequest{OwnerID: config.owner, TTLMS: config.ttlMS(), Metadata: metadata}
	var from dualClock
	// A retry after a lost answer may create a second session, which holds nothing and expires.
	granted, err := retry(ctx, c, lostAnswers, retryable, func() (api.Session, error) {
		from = readClock()
		return c.API().CreateSession(ctx, body)
	})
	if err != nil {
		return nil, err
	}
	session := &Session{client: c, granted: granted}
	base := context.WithoutCancel(ctx)
	session.validity, err = newValidity(base, &c.background, nil, session.lost)
	if err != nil {
		return nil, err
	}
	session.validity.set(from, time.Duration(session.granted.TTLMS)*time.Millisecond, nil)
	session.heartbeat.start(c, session.validity, config.beat, session.keepAlive)
	return session, nil
}

func (s *Session) lost(why error) error {
	s.loss.notePause(s.validity.pausedBy(why, s.HeartbeatErr()))
	return &LostError{What: s.String(), Why: why, loss: &s.loss}
}

// String names the session by its owner, without its secret.
func (s *Session) String() string { return "the session of " + s.granted.OwnerID }

func (s *Session) keepAlive(ctx context.Context, limit time.Duration) error {
	from := readClock()
	kept, err := s.client.API().limited(limit).KeepSessionAlive(ctx, s.granted.SessionID)
	if err != nil {
		return err
	}
	s.validity.set(from, time.Duration(kept.TTLMS)*time.Millisecond, nil)
	return nil
}

// Acquire acquires a lease in the session, as Client.Acquire does with InSession.
func (s *Session) Acquire(ctx context.Context, lock string, opts ...LeaseOption) (*Lease, error) {
	return s.client.Acquire(ctx, lock, append(opts[:len(opts):len(opts)], InSession(s))...)
}

// ID returns the session_id, a secret of the owner.
func (s *Session) ID() string { return s.granted.SessionID }

// Owner returns the owner of all leases in the session.
func (s *Session) Owner() string { return s.granted.OwnerID }

// Info returns the session as it was created. Its times are by the database's clock.
func (s *Session) Info() api.Session { return s.granted }

// Context returns a context that ends with the session, as that of a lease ends with the lease.
func (s *Session) Context() context.Context { return s.validity.context() }

// Err returns nil while the session can be relied on, and the reason afterwards, as Lease.Err does.
func (s *Session) Err() error { return s.validity.check() }

// ExpiresIn returns for how long the session can be relied on without another heartbeat.
func (s *Session) ExpiresIn() time.Duration { return s.validity.left() }

// HeartbeatErr returns the error of the last heartbeat; nil if it succeeded, or if there was none yet.
func (s *Session) HeartbeatErr() error { return s.heartbeat.last() }

// Close ends the session: its leases are released and their Contexts canceled, with the cause ErrLeaseReleased. It is
// resent until it is answered or ctx ends, for some 30 seconds, and may be called again. It returns ErrLeaseLost if the
// session had ended before, and ErrUnavailable if no gateway answered: then the session ends with its TTL.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := s.validity.endBefore(ctx)
	defer cancel()
	_, err := retry(ctx, s.client, untilAnswered, retryable, func() (api.SessionEnded, error) {
		return s.client.API().limited(releaseTryLimit).EndSession(ctx, s.granted.SessionID)
	})
	if isGone(err) {
		return s.lost(err)
	}
	return err
}
