package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// The text of a key is in the answer that makes it, and nowhere else: no log shows it.

const overlapDefault = 24 * time.Hour

func (e *Endpoints) keyRoutes(router *mux.Router) {
	const key = "/v1/keys/{id" + endpoint.AnyText
	e.Route(router, key+"/rotate", endpoint.Methods{"POST": endpoint.WithBody(e.Server, pathKey, e.rotateKey)})
	e.Route(router, key, endpoint.Methods{"DELETE": e.revokeKey})
	e.Route(router, "/v1/keys", endpoint.Methods{
		"GET": e.WithoutBody(e.listKeys), "POST": endpoint.WithBody(e.Server, endpoint.NoName, e.createKey),
	})
}

// pathKey reads the ID of a key from the path; the store checks it.
func pathKey(r *http.Request) (string, error) {
	_, err := endpoint.Query(r)
	return mux.Vars(r)["id"], err
}

func (e *Endpoints) createKey(ctx context.Context, a endpoint.Action[store.Name, api.KeyRequest]) (any, error) {
	lifetime, err := lifetimeOf(a.Body.LifetimeMS)
	if err != nil {
		return nil, err
	}
	grants, err := access.ParseAll(a.Body.Grants)
	if err != nil {
		return nil, endpoint.Invalid("grants: %v.", err)
	}
	request, text := newKey(lifetime, a.W.Principal)
	request.Principal, request.Description, request.Grants = a.Body.Principal, a.Body.Description, grants
	key, err := e.service.CreateKey(e.AsActor(ctx, a.W, a.R), request)
	if err != nil {
		return nil, err
	}
	return e.keyMade(a.W, a.R, "created", key, text), nil
}

func (e *Endpoints) rotateKey(ctx context.Context, a endpoint.Action[string, api.RotateRequest]) (any, error) {
	lifetime, err := lifetimeOf(a.Body.LifetimeMS)
	if err != nil {
		return nil, err
	}
	overlap := overlapDefault
	if a.Body.OverlapMS != nil {
		overlap, err = endpoint.Milliseconds("overlap_ms", a.Body.OverlapMS, 0, store.KeyOverlapMax)
	}
	if err != nil {
		return nil, err
	}
	request, text := newKey(lifetime, a.W.Principal)
	key, err := e.service.RotateKey(e.AsActor(ctx, a.W, a.R), a.Key, request, overlap)
	if err != nil {
		return nil, err
	}
	return e.keyMade(a.W, a.R, "rotated", key, text), nil
}

func lifetimeOf(ms *int64) (time.Duration, error) {
	return endpoint.Milliseconds("lifetime_ms", ms, store.KeyLifetimeMin, store.KeyLifetimeMax)
}

func newKey(lifetime time.Duration, by *access.Principal) (request store.KeyRequest, text string) {
	request = store.KeyRequest{Lifetime: lifetime, CreatedBy: by.Name}
	text, request.ID, request.Digest = apikey.New()
	return request, text
}

// keyMade logs a new key and returns the answer.
func (e *Endpoints) keyMade(w *endpoint.Answer, r *http.Request, action string, key store.Key, text string) endpoint.Created {
	e.logKey(w, r, action, key)
	w.Header().Set("Cache-Control", "no-store")
	return endpoint.Created{Document: api.NewKey{Key: keyAnswer(key), Secret: text}}
}

func (e *Endpoints) logKey(w *endpoint.Answer, r *http.Request, action string, key store.Key) {
	e.Metrics.AdminAction("key_" + action)
	e.Logger.InfoContext(r.Context(), "key changed", "action", action, "key_id", key.ID,
		"principal", key.Principal, "grants", access.Texts(key.Grants),
		"by", w.Principal.Name, "address", e.Address(r))
}

func (e *Endpoints) revokeKey(w *endpoint.Answer, r *http.Request) error {
	id, err := pathKey(r)
	if err != nil {
		return err
	}
	key, err := e.service.RevokeKey(e.AsActor(e.Work(r), w, r), id)
	if err == nil {
		e.logKey(w, r, "revoked", key)
	}
	return endpoint.AnswerJSON(w, keyAnswer(key), err)
}

func (e *Endpoints) listKeys(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r)
	query := store.KeyQuery{Limit: page.Limit}
	query.AfterMicros, query.AfterID = page.Numbered()
	if page.Err != nil {
		return nil, page.Err
	}
	keys, err := e.service.Keys(ctx, query)
	next := endpoint.NextCursor(page, keys, func(last store.Key) string {
		return fmt.Sprint(last.CreatedAt.UnixMicro(), " ", last.ID)
	})
	return api.Keys{Keys: endpoint.Convert(keys, keyAnswer), NextCursor: next}, err
}

func keyAnswer(key store.Key) api.Key {
	return api.Key{
		ID: key.ID, Principal: key.Principal, Description: key.Description, Grants: access.Texts(key.Grants),
		CreatedAt: api.Time{Time: key.CreatedAt}, CreatedBy: key.CreatedBy, ExpiresAt: endpoint.OptionalTime(key.ExpiresAt),
		RevokedAt: endpoint.OptionalTime(key.RevokedAt), LastUsedAt: endpoint.OptionalTime(key.LastUsedAt),
	}
}
