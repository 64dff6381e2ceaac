package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// A session's ID is a secret, like a lease's: only its owner gets it, and no log shows it.

const sessionsPath = "/v1/sessions"

func (g *Gateway) sessionRoutes(router *mux.Router) {
	const session = sessionsPath + "/{session" + anyText
	g.route(router, session+"/keepalive", methods{"POST": acting(g, pathSession, g.keepSessionAlive)})
	g.route(router, session, methods{
		"GET": answeringNamed(g, pathSession, g.getSession), "DELETE": answeringNamed(g, pathSession, g.endSession),
	})
	g.route(router, sessionsPath, methods{
		"GET": g.answering(g.listSessions), "POST": acting(g, noName, g.createSession),
	})
}

func (g *Gateway) createSession(ctx context.Context, a action[store.Name, api.SessionRequest]) (any, error) {
	duration, err := ttl(a.body.TTLMS)
	if err != nil {
		return nil, err
	}
	principal := recorded(a.w.principal)
	if err := g.checkLeases(principal); err != nil {
		return nil, err
	}
	session, err := g.backend.CreateSession(ctx, store.SessionRequest{
		OwnerID: a.body.OwnerID, TTL: duration, Metadata: optionalJSON(a.body.Metadata), Principal: principal,
	})
	g.metrics.SessionCreated(err)
	return created{sessionAnswer(session)}, err
}

func (g *Gateway) keepSessionAlive(ctx context.Context, a action[uuid.UUID, struct{}]) (any, error) {
	session, err := g.backend.KeepAlive(ctx, a.key)
	g.metrics.SessionKeptAlive(session, err)
	return sessionAnswer(session), err
}

func (g *Gateway) getSession(ctx context.Context, id uuid.UUID) (any, error) {
	session, leases, err := g.backend.Session(ctx, id)
	answer := sessionAnswer(session)
	answer.Leases = &leases
	return answer, err
}

func (g *Gateway) endSession(ctx context.Context, id uuid.UUID) (any, error) {
	released, err := g.backend.EndSession(ctx, id)
	g.metrics.SessionEnded(err)
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
		return uuid.UUID{}, invalid("%s is not one that POST /v1/sessions returned.", field)
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

func (g *Gateway) listSessions(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "owner_id", "state")
	query := store.SessionQuery{
		OwnerID: page.Get("owner_id"), State: store.SessionState(page.Get("state")), Limit: page.limit,
	}
	query.AfterMicros, query.AfterSortKey = page.numbered()
	if page.err != nil {
		return nil, page.err
	}
	sessions, err := g.backend.Sessions(ctx, query)
	next := nextCursor(page, sessions, func(last store.ShownSession) string {
		return fmt.Sprint(last.CreatedAt.UnixMicro(), " ", last.SortKey)
	})
	return api.SessionInfos{Sessions: convert(sessions, sessionInfo), NextCursor: next}, err
}

func sessionInfo(session store.ShownSession) api.SessionInfo {
	return api.SessionInfo{
		Handle: session.Handle, OwnerID: session.OwnerID, TTLMS: session.TTL.Milliseconds(),
		CreatedAt: api.Time{Time: session.CreatedAt}, ExpiresAt: api.Time{Time: session.ExpiresAt},
		State: string(session.State), Leases: session.Leases, Metadata: session.Metadata,
		Principal: session.Principal,
	}
}
