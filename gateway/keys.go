package gateway

import (
	"context"
	"fmt"
	"time"

	"net/http"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store"
)

// The text of a key is in the answer that makes it, and nowhere else: no log shows it.

const overlapDefault = 24 * time.Hour

func (g *Gateway) keyRoutes(router *mux.Router) {
	const key = "/v1/keys/{id" + anyText
	g.route(router, key+"/rotate", methods{"POST": acting(g, pathKey, g.rotateKey)})
	g.route(router, key, methods{"DELETE": g.revokeKey})
	g.route(router, "/v1/keys", methods{
		"GET": g.answering(g.listKeys), "POST": acting(g, noName, g.createKey),
	})
}

// pathKey reads the ID of a key from the path; the store checks it.
func pathKey(r *http.Request) (string, error) {
	_, err := query(r)
	return mux.Vars(r)["id"], err
}

func (g *Gateway) createKey(ctx context.Context, a action[store.Name, api.KeyRequest]) (any, error) {
	lifetime, err := lifetimeOf(a.body.LifetimeMS)
	if err != nil {
		return nil, err
	}
	grants, err := access.ParseAll(a.body.Grants)
	if err != nil {
		return nil, invalid("grants: %v.", err)
	}
	request, text := newKey(lifetime, a.w.principal)
	request.Principal, request.Description, request.Grants = a.body.Principal, a.body.Description, grants
	key, err := g.backend.CreateKey(g.asActor(ctx, a.w, a.r), request)
	if err != nil {
		return nil, err
	}
	return g.keyMade(a.w, a.r, "created", key, text), nil
}

func (g *Gateway) rotateKey(ctx context.Context, a action[string, api.RotateRequest]) (any, error) {
	lifetime, err := lifetimeOf(a.body.LifetimeMS)
	if err != nil {
		return nil, err
	}
	overlap := overlapDefault
	if a.body.OverlapMS != nil {
		overlap, err = milliseconds("overlap_ms", a.body.OverlapMS, 0, store.KeyOverlapMax)
	}
	if err != nil {
		return nil, err
	}
	request, text := newKey(lifetime, a.w.principal)
	key, err := g.backend.RotateKey(g.asActor(ctx, a.w, a.r), a.key, request, overlap)
	if err != nil {
		return nil, err
	}
	return g.keyMade(a.w, a.r, "rotated", key, text), nil
}

func lifetimeOf(ms *int64) (time.Duration, error) {
	return milliseconds("lifetime_ms", ms, store.KeyLifetimeMin, store.KeyLifetimeMax)
}

func newKey(lifetime time.Duration, by *access.Principal) (request store.KeyRequest, text string) {
	request = store.KeyRequest{Lifetime: lifetime, CreatedBy: by.Name}
	text, request.ID, request.Digest = apikey.New()
	return request, text
}

// keyMade logs a new key and returns the answer.
func (g *Gateway) keyMade(w *answerWriter, r *http.Request, action string, key store.Key, text string) created {
	g.logKey(w, r, action, key)
	w.Header().Set("Cache-Control", "no-store")
	return created{api.NewKey{Key: keyAnswer(key), Secret: text}}
}

func (g *Gateway) logKey(w *answerWriter, r *http.Request, action string, key store.Key) {
	g.metrics.AdminAction("key_" + action)
	g.config.Logger.InfoContext(r.Context(), "key changed", "action", action, "key_id", key.ID,
		"principal", key.Principal, "grants", access.Texts(key.Grants),
		"by", w.principal.Name, "address", g.address(r))
}

func (g *Gateway) revokeKey(w *answerWriter, r *http.Request) error {
	id, err := pathKey(r)
	if err != nil {
		return err
	}
	key, err := g.backend.RevokeKey(g.asActor(g.work(r), w, r), id)
	if err == nil {
		g.logKey(w, r, "revoked", key)
	}
	return answerJSON(w, keyAnswer(key), err)
}

func (g *Gateway) listKeys(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r)
	query := store.KeyQuery{Limit: page.limit}
	query.AfterMicros, query.AfterID = page.numbered()
	if page.err != nil {
		return nil, page.err
	}
	keys, err := g.backend.Keys(ctx, query)
	next := nextCursor(page, keys, func(last store.Key) string { return fmt.Sprint(last.CreatedAt.UnixMicro(), " ", last.ID) })
	return api.Keys{Keys: convert(keys, keyAnswer), NextCursor: next}, err
}

func keyAnswer(key store.Key) api.Key {
	return api.Key{
		ID: key.ID, Principal: key.Principal, Description: key.Description, Grants: access.Texts(key.Grants),
		CreatedAt: api.Time{Time: key.CreatedAt}, CreatedBy: key.CreatedBy, ExpiresAt: optionalTime(key.ExpiresAt),
		RevokedAt: optionalTime(key.RevokedAt), LastUsedAt: optionalTime(key.LastUsedAt),
	}
}
