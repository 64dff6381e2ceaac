package locks

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// A session's ID is a secret, like a lease's: only its owner gets it, and no log shows it.

func (e *Endpoints) sessionRoutes(router *mux.Router) {
	const session = endpoint.SessionsPath + "/{session" + endpoint.AnyText
	e.Route(router, session+"/keepalive", endpoint.Methods{
		"POST": endpoint.WithBody(e.Server, pathSession, e.keepSessionAlive),
	})
	e.Route(router, session, endpoint.Methods{
		"GET":    endpoint.WithoutBodyNamed(e.Server, pathSession, e.getSession),
		"DELETE": endpoint.WithoutBodyNamed(e.Server, pathSession, e.endSession),
	})
	e.Route(router, endpoint.SessionsPath, endpoint.Methods{
		"GET": e.WithoutBody(e.listSessions), "POST": endpoint.WithBody(e.Server, endpoint.NoName, e.createSession),
	})
}

func (e *Endpoints) createSession(ctx context.Context, a endpoint.Action[store.Name, api.SessionRequest]) (any, error) {
	duration, err := ttl(a.Body.TTLMS)
	if err != nil {
		return nil, err
	}
	principal := endpoint.NameOf(a.W.Principal)
	if err := e.checkLeases(principal); err != nil {
		return nil, err
	}
	session, err := e.service.CreateSession(ctx, store.SessionRequest{
		OwnerID: a.Body.OwnerID, TTL: duration, Metadata: endpoint.OptionalJSON(a.Body.Metadata), Principal: principal,
	})
	e.Metrics.SessionCreated(err)
	return endpoint.Created{Document: sessionAnswer(session)}, err
}

func (e *Endpoints) keepSessionAlive(ctx context.Context, a endpoint.Action[uuid.UUID, struct{}]) (any, error) {
	session, err := e.service.KeepAlive(ctx, a.Key)
	e.Metrics.SessionKeptAlive(session, err)
	return sessionAnswer(session), err
}

func (e *Endpoints) getSession(ctx context.Context, id uuid.UUID) (any, error) {
	session, leases, err := e.service.Session(ctx, id)
	answer := sessionAnswer(session)
	answer.Leases = &leases
	return answer, err
}

func (e *Endpoints) endSession(ctx context.Context, id uuid.UUID) (any, error) {
	released, err := e.service.EndSession(ctx, id)
	e.Metrics.SessionEnded(err)
	return api.SessionEnded{Ended: true, Released: released}, err
}

// pathSession reads a session's ID from the path.
func pathSession(r *http.Request) (uuid.UUID, error) {
	return parseSessionID("The session_id in the path", mux.Vars(r)["session"])
}

// parseSessionID reads a session's ID. The ID of zeros is refused: to the store it means no session.
func parseSessionID(field, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 || id == uuid.Nil {
		return uuid.UUID{}, endpoint.Invalid("%s is not one that POST /v1/sessions returned.", field)
	}
	return id, nil
}

func sessionAnswer(session store.Session) api.Session {
	return api.Session{
		SessionID: session.ID.String(), OwnerID: session.OwnerID, TTLMS: session.TTL.Milliseconds(),
		CreatedAt: api.Time{Time: session.CreatedAt}, ExpiresAt: api.Time{Time: session.ExpiresAt},
		State: string(session.State), Metadata: session.Metadata,
	}
}

func (e *Endpoints) listSessions(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "owner_id", "state")
	query := store.SessionQuery{
		OwnerID: page.Get("owner_id"), State: store.SessionState(page.Get("state")), Limit: page.Limit,
	}
	query.AfterMicros, query.AfterSortKey = page.Numbered()
	if page.Err != nil {
		return nil, page.Err
	}
	sessions, err := e.service.Sessions(ctx, query)
	next := endpoint.NextCursor(page, sessions, func(last store.SessionInfo) string {
		return fmt.Sprint(last.CreatedAt.UnixMicro(), " ", last.SortKey)
	})
	return api.SessionInfos{Sessions: endpoint.Convert(sessions, sessionInfo), NextCursor: next}, err
}

func sessionInfo(session store.SessionInfo) api.SessionInfo {
	return api.SessionInfo{
		Handle: session.Handle, OwnerID: session.OwnerID, TTLMS: session.TTL.Milliseconds(),
		CreatedAt: api.Time{Time: session.CreatedAt}, ExpiresAt: api.Time{Time: session.ExpiresAt},
		State: string(session.State), Leases: session.Leases, Metadata: session.Metadata,
		Principal: session.Principal,
	}
}

// watchLock streams the states of a lock.
func (e *Endpoints) watchLock(w *endpoint.Answer, r *http.Request) error {
	lock, err := endpoint.LockName(r)
	if err != nil {
		return err
	}
	if p := endpoint.ReadParameters(r); p.Err != nil {
		return p.Err
	}
	return e.StreamEvents(w, r, func() (endpoint.EventSource, error) {
		states, err := e.service.Watch(e.Work(r), lock)
		return &lockStates{states: states}, err
	})
}

// lockStates sends the states of a watch.
type lockStates struct {
	states *watch.Subscription
	next   store.WatchState // that Wait returned for
}

func (s *lockStates) Begin(*endpoint.EventStream) error { return nil }

func (s *lockStates) Wait(ctx context.Context) (err error) {
	s.next, err = s.states.Next(ctx)
	return err
}

func (s *lockStates) Send(_ context.Context, stream *endpoint.EventStream) error {
	state := api.WatchState{Lock: endpoint.LockAnswer(s.next.Lock), Version: s.next.Version}
	return stream.Send(nil, api.EventState, state)
}

func (s *lockStates) Idle(stream *endpoint.EventStream) error { return stream.Comment() }

func (s *lockStates) Close() { s.states.Close() }
