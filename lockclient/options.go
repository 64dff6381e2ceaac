package lockclient

import (
	"encoding/json"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// LeaseOption changes what is asked for by Acquire, Do, NewSession or Campaign. An option that makes no sense there
// is refused as ErrInvalidRequest.
type LeaseOption func(*leaseConfig)

// waitForCtx is a wait that only ctx ends.
const waitForCtx = time.Duration(-1)

type leaseConfig struct {
	owner    string
	ttl      *time.Duration
	metadata any
	mode     string
	scope    string
	wait     time.Duration
	session  *Session
	beat     *heartbeatConfig
}

// WithTTL sets how long the lease or session lasts without a renewal: 100 ms to 24 h, in whole milliseconds. Default
// 30 s.
func WithTTL(ttl time.Duration) LeaseOption {
	return func(c *leaseConfig) { c.ttl = &ttl }
}

// WithMetadata sets what others see beside the lease: anything that is a JSON object of at most 4096 bytes.
func WithMetadata(metadata any) LeaseOption {
	return func(c *leaseConfig) { c.metadata = metadata }
}

// WithLeaseOwner sets the owner of this lease, in place of the client's.
func WithLeaseOwner(ownerID string) LeaseOption {
	return func(c *leaseConfig) { c.owner = ownerID }
}

// Shared asks for a lease that many may hold at once. It can't write.
func Shared() LeaseOption {
	return func(c *leaseConfig) { c.mode = "shared" }
}

// Subtree asks for the name and everything below it. The lease may write to any resource there, see OnResource.
func Subtree() LeaseOption {
	return func(c *leaseConfig) { c.scope = "subtree" }
}

// WithWait stands in line for up to this long; 0 is a try. A gateway is asked to wait for 10 minutes at most, and for
// less than ctx has left; a longer wait asks again, and stands at the end of the line then.
func WithWait(wait time.Duration) LeaseOption {
	return func(c *leaseConfig) { c.wait = max(0, wait) }
}

// InSession puts the lease into a session: it lasts as long as that and has no TTL and no renewals of its own. Its
// owner is the session's.
func InSession(session *Session) LeaseOption {
	return func(c *leaseConfig) { c.session = session }
}

// WithHeartbeat renews the lease in the background from the start, as StartHeartbeat does. Do, sessions and campaigns
// do it unasked; there it only sets the options.
func WithHeartbeat(opts ...HeartbeatOption) LeaseOption {
	return func(c *leaseConfig) { c.beat = newHeartbeatConfig(opts) }
}

func (c *Client) leaseConfig(opts []LeaseOption) leaseConfig {
	config := leaseConfig{owner: c.owner}
	for _, opt := range opts {
		opt(&config)
	}
	if config.session != nil {
		config.owner = config.session.Owner()
	}
	return config
}

// check refuses what can't be meant.
func (c *leaseConfig) check(op string) error {
	switch {
	case c.ttl != nil && *c.ttl%time.Millisecond != 0:
		return refused(op, api.CodeInvalidRequest, "the TTL "+c.ttl.String()+" must be whole milliseconds")
	case c.session != nil && c.ttl != nil:
		return refused(op, api.CodeInvalidRequest, "a lease in a session has no TTL of its own: leave out WithTTL")
	case c.session != nil && c.beat != nil:
		return refused(op, api.CodeInvalidRequest, "a lease in a session has no heartbeat of its own: leave out WithHeartbeat")
	}
	return nil
}

func (c *leaseConfig) ttlMS() *int64 {
	if c.ttl == nil {
		return nil
	}
	ms := c.ttl.Milliseconds()
	return &ms
}

func (c *leaseConfig) sessionID() *string {
	if c.session == nil {
		return nil
	}
	id := c.session.ID()
	return &id
}

// jsonOf is nil for nil.
func jsonOf(op, what string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, refused(op, api.CodeInvalidRequest, "the "+what+" can't be written as JSON: "+err.Error())
	}
	return text, nil
}
