package lockclient

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Session is one TTL and one heartbeat for any number of leases. It is safe for concurrent use. It is kept alive in the background until
// it ends: by Close, by being lost, or with its client. All its leases end with it.
type Session struct {
	client  *Client
	granted api.Session
	trust   *trust
	heart   heart
}

// NewSession makes a session, and keeps it alive. WithTTL, WithMetadata, WithLeaseOwner and WithHeartbeat are its options. It returns
// ErrUnavailable if no gateway could serve, and ErrClosed.
func (c *Client) NewSession(ctx context.Context, opts ...LeaseOption) (*Session, error) {
	const op = "create session"
	config := c.leaseConfig(opts)
	if err := config.check(op); err != nil {
		return nil, err
	}
	if config.mode != "" || config.scope != "" || config.wait != 0 || config.session != nil {
		return nil, refused(op, api.CodeInvalidRequest, "Shared, Subtree, WithWait and InSession are options of a lease, not of a session")
	}
	metadata, err := jsonOf(op, "metadata", config.metadata)
	if err != nil {
		return nil, err
	}
	if err := c.background.open(); err != nil {
		return nil, err
	}
	session := &Session{client: c}
	var from moment
	// Sent again after a lost answer it may make a second session: nobody knows that, it holds nothing, and it expires.
	err = c.insist(ctx, lostAnswers, unanswered, func() (err error) {
		from = now()
		body := api.SessionRequest{OwnerID: config.owner, TTLMS: config.ttlMS(), Metadata: metadata}
		session.granted, err = c.API().CreateSession(ctx, body)
		return err
	})
	if err != nil {
		return nil, err
	}
	base := context.WithoutCancel(ctx)
	if session.trust, err = newTrust(base, c.background.ctx, &c.background.trusts, nil, session.lost); err != nil {
		return nil, err
	}
	session.trust.set(from, time.Duration(session.granted.TTLMS)*time.Millisecond)
	if config.beat == nil {
		config.beat = &heartbeatConfig{}
	}
	session.heart.start(c, session.trust, config.beat, session.keepAlive)
	return session, nil
}

func (s *Session) lost(why error) error {
	return &LostError{What: s.String(), Why: why}
}

// String tells whose session it is, without its secret.
func (s *Session) String() string { return "the session of " + s.granted.OwnerID }

func (s *Session) keepAlive(ctx context.Context, limit time.Duration) error {
	from := now()
	kept, err := s.client.API().limited(limit).KeepSessionAlive(ctx, s.granted.SessionID)
	if err != nil {
		return err
	}
	s.trust.set(from, time.Duration(kept.TTLMS)*time.Millisecond)
	return nil
}

// Acquire asks for a lease in the session, as Client.Acquire does with InSession.
func (s *Session) Acquire(ctx context.Context, lock string, opts ...LeaseOption) (*Lease, error) {
	return s.client.Acquire(ctx, lock, append(opts[:len(opts):len(opts)], InSession(s))...)
}

// ID is the session_id, a secret of the owner's.
func (s *Session) ID() string { return s.granted.SessionID }

// Owner is the owner of all leases in the session.
func (s *Session) Owner() string { return s.granted.OwnerID }

// Info is the session as it was made. Its times are the database's clock's.
func (s *Session) Info() api.Session { return s.granted }

// Context ends with the session, as that of a lease does with the lease.
func (s *Session) Context() context.Context { return s.trust.context() }

// Err is nil as long as the session can be relied on, and afterwards why not, as of a lease.
func (s *Session) Err() error { return s.trust.check() }

// Valid says whether Err is nil.
func (s *Session) Valid() bool { return s.Err() == nil }

// ExpiresIn is how long the session can still be relied on without another heartbeat.
func (s *Session) ExpiresIn() time.Duration { return s.trust.left() }

// HeartbeatErr is the error of the last heartbeat; nil if it succeeded, or if there was none yet.
func (s *Session) HeartbeatErr() error { return s.heart.last() }

// Close ends the session: its leases are released and their Contexts cancelled, with the cause ErrLeaseReleased. It is sent again until
// it is answered or ctx ends, for some 30 seconds, and may be called again. It returns ErrLeaseLost if the session had ended before,
// and ErrUnavailable if nobody answered: then it ends with its TTL.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := s.trust.endBefore(ctx)
	defer cancel()
	calls := s.client.API().limited(releaseTryLimit)
	err := s.client.insist(ctx, insistence, unanswered, func() error {
		_, err := calls.EndSession(ctx, s.granted.SessionID)
		return err
	})
	if gone(err) {
		return s.lost(err)
	}
	return err
}
