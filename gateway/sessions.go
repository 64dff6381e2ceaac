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
	g.route(router, session+"/keepalive", methods{"POST": g.keepSessionAlive})
	g.route(router, session, methods{"GET": g.answering(g.getSession), "DELETE": g.answering(g.endSession)})
	g.route(router, sessionsPath, methods{"GET": g.listSessions(), "POST": g.createSession})
}

func (g *Gateway) createSession(w http.ResponseWriter, r *http.Request) error {
	var body api.SessionRequest
	if err := g.readJSON(w, r, &body); err != nil {
		return err
	}
	duration, err := ttl(body.TTLMS)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	session, err := g.backend.CreateSession(ctx, store.SessionRequest{
		OwnerID: body.OwnerID, TTL: duration, Metadata: optionalJSON(body.Metadata),
	})
	g.metrics.SessionCreated(err)
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusCreated, sessionAnswer(session))
}

func (g *Gateway) keepSessionAlive(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	if err := g.readEmpty(w, r); err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	session, err := g.backend.KeepAlive(ctx, id)
	g.metrics.SessionKeptAlive(session, err)
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusOK, sessionAnswer(session))
}

func (g *Gateway) getSession(ctx context.Context, r *http.Request) (any, error) {
	id, err := pathSession(r)
	if err != nil {
		return nil, err
	}
	session, leases, err := g.backend.Session(ctx, id)
	answer := sessionAnswer(session)
	answer.Leases = &leases
	return answer, err
}

func (g *Gateway) endSession(ctx context.Context, r *http.Request) (any, error) {
	id, err := pathSession(r)
	if err != nil {
		return nil, err
	}
	released, err := g.backend.EndSession(ctx, id)
	g.metrics.SessionEnded(err)
	return api.SessionEnded{Ended: true, Released: released}, err
}

// pathSession reads a session's ID from the path, and checks that the URL has no parameters.
func pathSession(r *http.Request) (uuid.UUID, error) {
	if _, err := query(r); err != nil {
		return uuid.UUID{}, err
	}
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

func (g *Gateway) listSessions() handler {
	return listing(g, collection[store.SessionQuery, store.ShownSession, api.SessionInfo]{
		parameters: []string{"owner_id", "state"},
		query: func(_ *http.Request, page page) (query store.SessionQuery, err error) {
			query = store.SessionQuery{
				OwnerID: page.Get("owner_id"), State: store.SessionState(page.Get("state")), Limit: page.limit,
			}
			query.AfterMicros, query.AfterSortKey, err = page.numbered()
			return query, err
		},
		rows: Backend.Sessions,
		item: sessionInfo,
		cursor: func(_ store.SessionQuery, last store.ShownSession) string {
			return fmt.Sprint(last.CreatedAt.UnixMicro(), " ", last.SortKey)
		},
		answer: func(_ context.Context, _ store.SessionQuery, sessions []api.SessionInfo, next string) (any, error) {
			return api.SessionInfos{Sessions: sessions, NextCursor: next}, nil
		},
	})
}

func sessionInfo(session store.ShownSession) api.SessionInfo {
	return api.SessionInfo{
		Handle: session.Handle, OwnerID: session.OwnerID, TTLMS: session.TTL.Milliseconds(),
		CreatedAt: api.Time{Time: session.CreatedAt}, ExpiresAt: api.Time{Time: session.ExpiresAt},
		State: string(session.State), Leases: session.Leases, Metadata: session.Metadata,
	}
}
