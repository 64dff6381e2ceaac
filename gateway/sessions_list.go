package gateway

import (
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listSessions(w http.ResponseWriter, r *http.Request) error {
	page, err := readPage(r, "owner_id", "state")
	if err != nil {
		return err
	}
	query := store.SessionQuery{OwnerID: page.values.Get("owner_id"), State: store.SessionState(page.values.Get("state")), Limit: page.limit}
	if query.AfterMicros, query.AfterPlace, err = page.numbered(); err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	sessions, err := g.backend.Sessions(ctx, query)
	if err != nil {
		return err
	}
	answer := api.SessionInfos{Sessions: make([]api.SessionInfo, len(sessions))}
	for i, session := range sessions {
		answer.Sessions[i] = sessionInfo(session)
	}
	answer.NextCursor = nextCursor(len(sessions), page.limit, func() string {
		last := sessions[len(sessions)-1]
		return fmt.Sprint(last.CreatedAt.UnixMicro(), " ", last.Place)
	})
	return answerJSON(w, http.StatusOK, answer)
}

func sessionInfo(session store.ShownSession) api.SessionInfo {
	return api.SessionInfo{
		Handle: session.Handle, OwnerID: session.OwnerID, TTLMS: session.TTL.Milliseconds(),
		CreatedAt: api.Time{Time: session.CreatedAt}, ExpiresAt: api.Time{Time: session.ExpiresAt},
		State: string(session.State), Leases: session.Leases, Metadata: session.Metadata,
	}
}
