package gateway

import (
	"net/http"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/locks"
	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
)

// accessRules say for every route who may call it. A route without a rule can't be added.
//
// No handler runs, no body is read and nothing is sent to the database before a request has passed its rule. So who may
// not see a name gets the same answer, in the same time, whether it exists or not.
var accessRules = map[string]endpoint.AccessRule{
	"POST /v1/locks/{lock}/acquire":                 endpoint.OnName("lock", access.Lock),
	"POST /v1/locks/{lock}/renew":                   endpoint.OnName("lock", access.Lock),
	"POST /v1/locks/{lock}/release":                 endpoint.OnName("lock", access.Lock),
	"POST /v1/locks/{lock}/break":                   endpoint.OnName("lock", access.Admin),
	"GET /v1/locks/{lock}/watch":                    endpoint.OnName("lock", access.Lock, access.Observe),
	"GET /v1/locks/{lock}":                          endpoint.OnName("lock", access.Lock, access.Observe),
	"GET /v1/locks":                                 endpoint.OnEach(access.Observe),
	"GET /v1/leases":                                endpoint.OnEach(access.Observe),
	"GET /v1/waits":                                 endpoint.OnEach(access.Observe),
	"POST /v1/sessions":                             endpoint.OnEach(access.Lock),
	"GET /v1/sessions":                              endpoint.OnAll(access.Observe),
	"POST /v1/sessions/{session}/keepalive":         endpoint.OnEach(access.Lock),
	"GET /v1/sessions/{session}":                    endpoint.OnEach(access.Lock),
	"DELETE /v1/sessions/{session}":                 endpoint.OnEach(access.Lock),
	"PUT /v1/resources/{resource}/records/{key}":    endpoint.OnName("resource", access.Write),
	"DELETE /v1/resources/{resource}/records/{key}": endpoint.OnName("resource", access.Write),
	"GET /v1/resources/{resource}/records/{key}":    endpoint.OnName("resource", access.Read),
	"HEAD /v1/resources/{resource}/records/{key}":   endpoint.OnName("resource", access.Read),
	"GET /v1/resources/{resource}/records":          endpoint.OnName("resource", access.Read),
	"GET /v1/resources/{resource}/fence":            endpoint.OnName("resource", access.Read),
	"PUT /v1/resources/{resource}/fence":            endpoint.OnName("resource", access.Admin),
	"POST /v1/transactions":                         endpoint.OnEach(access.Write),
	"POST /v1/writes":                               endpoint.OnEach(access.Write),
	"GET /v1/terraform/{state}":                     endpoint.OnState(access.Read),
	"POST /v1/terraform/{state}":                    endpoint.OnState(access.Write),
	"DELETE /v1/terraform/{state}":                  endpoint.OnState(access.Write),
	"LOCK /v1/terraform/{state}":                    endpoint.OnState(access.Lock),
	"UNLOCK /v1/terraform/{state}":                  endpoint.OnState(access.Lock, access.Admin),
	"POST /v1/terraform/{state}/lock":               endpoint.OnState(access.Lock),
	"POST /v1/terraform/{state}/unlock":             endpoint.OnState(access.Lock, access.Admin),
	"GET /v1/terraform/{state}/history":             endpoint.OnState(access.Read),
	"GET /v1/terraform/{state}/history/{version}":   endpoint.OnState(access.Read),
	"GET /v1/policies/{prefix}":                     endpoint.OnName("prefix", access.Admin),
	"PUT /v1/policies/{prefix}":                     endpoint.OnName("prefix", access.Admin),
	"DELETE /v1/policies/{prefix}":                  endpoint.OnName("prefix", access.Admin),
	"GET /v1/policies":                              endpoint.OnEach(access.Admin),
	"GET /v1/tables":                                endpoint.OnAll(access.Observe),
	"GET /v1/sql-roles":                             endpoint.OnAll(access.Observe),
	"GET /v1/rejections":                            endpoint.OnEach(access.Observe),
	"GET /v1/rejections/summary":                    endpoint.OnEach(access.Observe),
	"GET /v1/rejections/{id}":                       endpoint.OnEach(access.Observe),
	"GET /v1/rejections/stream":                     endpoint.OnEach(access.Observe),
	"GET /v1/overview":                              endpoint.OnAll(access.Observe),
	"GET /v1/overview/stream":                       endpoint.OnAll(access.Observe),
	"GET /v1/keys":                                  endpoint.OnAll(access.Admin),
	"POST /v1/keys":                                 endpoint.OnAll(access.Admin),
	"DELETE /v1/keys/{id}":                          endpoint.OnAll(access.Admin),
	"POST /v1/keys/{id}/rotate":                     endpoint.OnAll(access.Admin),
	"GET /v1/audit":                                 endpoint.OnEach(access.Admin),
	"GET /v1/audit/seals":                           endpoint.OnAll(access.Admin),
	"GET /v1/whoami":                                endpoint.AnyPrincipal,
	"GET /v1/sign-in":                               endpoint.Public,
	"GET /v1/sign-in/{issuer}/start":                endpoint.Public,
	"GET /v1/sign-in/{issuer}/callback":             endpoint.Public,
	"POST /v1/sign-in":                              endpoint.Public,
	"DELETE /v1/sign-in":                            endpoint.Public,
	"GET /v1/drain":                                 endpoint.OnAll(access.Admin),
	"PUT /v1/drain":                                 endpoint.OnAll(access.Admin),
	"DELETE /v1/drain":                              endpoint.OnAll(access.Admin),
	"GET /metrics":                                  endpoint.OnAll(access.Observe),
	"GET /healthz":                                  endpoint.Public,
	"GET /readyz":                                   endpoint.Public,
	"GET /openapi.yaml":                             endpoint.Public,
	"GET /":                                         endpoint.Public,
	"HEAD /":                                        endpoint.Public,
	"GET /ui/{file}":                                endpoint.Public,
	"HEAD /ui/{file}":                               endpoint.Public,
}

// routes builds the router. The routes of each entity stand beside its handlers, the more specific paths first.
func (g *Gateway) routes() *mux.Router {
	router := mux.NewRouter().SkipClean(true)
	g.locks.Routes(router)
	g.writes.Routes(router)
	g.terraform.Routes(router)
	g.rejections.Routes(router)
	g.overviewRoutes(router)
	g.admin.Routes(router)
	g.signIn.Routes(router)
	g.healthRoutes(router)
	g.dashboardRoutes(router)
	router.NotFoundHandler = g.Serving(endpoint.RouteNone, endpoint.Public, func(*endpoint.Answer, *http.Request) error {
		return endpoint.Problem(http.StatusNotFound, api.CodeNotFound,
			"There is nothing at this path; /openapi.yaml describes the API.")
	})
	return router
}

// frequentFirst passes writes of records and operations on leases to their handlers, and all else to the router. It
// avoids the regular expressions of these paths and of all paths before them, and the router's copies of the request:
// for a write they cost more than everything else that the gateway does.
func (g *Gateway) frequentFirst(router http.Handler) http.Handler {
	frequent := func(method, path string, handle endpoint.Handler) http.Handler {
		template := endpoint.RouteTemplate(path)
		return g.Serving(template, g.RuleOf(method, template), handle)
	}
	records := map[string]http.Handler{
		http.MethodPut:    frequent(http.MethodPut, writes.RecordRoute, g.writes.PutRecord),
		http.MethodDelete: frequent(http.MethodDelete, writes.RecordRoute, g.writes.DeleteRecord),
	}
	operations := map[string]http.Handler{}
	for name, handle := range g.locks.LeaseOperations() {
		operations[name] = frequent(http.MethodPost, locks.LockRoute+"/"+name, handle)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var handler http.Handler
		if _, _, isRecord := endpoint.CutRecord(r.URL.Path); isRecord {
			handler = records[r.Method]
		} else if _, operation := endpoint.CutLeaseOperation(r.URL.Path); r.Method == http.MethodPost {
			handler = operations[operation]
		}
		if handler == nil {
			handler = router
		}
		handler.ServeHTTP(w, r)
	})
}
