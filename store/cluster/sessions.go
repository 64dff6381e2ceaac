package cluster

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// errNoSessions says that a session is of one database: its leases could not be at several nodes.
var errNoSessions = fmt.Errorf("%w: a cluster has no sessions", store.ErrUnsupported)

// CreateSession returns ErrUnsupported.
func (c *Cluster) CreateSession(context.Context, store.SessionRequest) (store.Session, error) {
	return store.Session{}, errNoSessions
}

// KeepAlive returns ErrUnsupported.
func (c *Cluster) KeepAlive(context.Context, uuid.UUID) (store.Session, error) {
	return store.Session{}, errNoSessions
}

// Session returns ErrUnsupported.
func (c *Cluster) Session(context.Context, uuid.UUID) (session store.Session, leases int64, err error) {
	return store.Session{}, 0, errNoSessions
}

// EndSession returns ErrUnsupported.
func (c *Cluster) EndSession(context.Context, uuid.UUID) (released int64, err error) {
	return 0, errNoSessions
}

// Sessions returns none.
func (c *Cluster) Sessions(context.Context, store.SessionQuery) ([]store.SessionInfo, error) {
	return nil, nil
}
