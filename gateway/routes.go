package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
)

// handler answers a request, or returns the error that answerProblem turns into an answer.
type handler func(*answerWriter, *http.Request) error

// methods are the handlers of one path.
type methods map[string]handler

// knownMethods are the methods that paths may have, in the order in which Allow names them.
var knownMethods = []string{"GET", "HEAD", "PUT", "POST", "DELETE", "LOCK", "UNLOCK"}

// routeNone is the route of an unknown path.
const routeNone = "none"

// anyText matches a name in a path. Names may contain anything, even newlines: the handlers refuse invalid ones.
const anyText = ":(?s:.*)}"

// routes builds the router. The routes of each entity stand beside its handlers, the more specific paths first.
func (g *Gateway) routes() *mux.Router {
	router := mux.NewRouter().SkipClean(true)
	g.lockRoutes(router)
	g.sessionRoutes(router)
	g.route(router, "/v1/leases", methods{"GET": g.answering(g.listLeases)})
	g.route(router, "/v1/waits", methods{"GET": g.answering(g.getWaits)})
	g.electionRoutes(router)
	g.recordRoutes(router)
	g.route(router, "/v1/transactions", methods{"POST": acting(g, noName, g.transact)})
	g.route(router, "/v1/writes", methods{"POST": g.bulk})
	g.terraformRoutes(router)
	g.policyRoutes(router)
	g.route(router, "/v1/tables", methods{"GET": g.answering(g.listTables)})
	g.rejectionRoutes(router)
	g.overviewRoutes(router)
	g.keyRoutes(router)
	g.route(router, "/v1/audit", methods{"GET": g.answering(g.listAudit)})
	g.principalRoutes(router)
	g.healthRoutes(router)
	g.dashboardRoutes(router)
	router.NotFoundHandler = g.serving(routeNone, public, func(*answerWriter, *http.Request) error {
		return problem(http.StatusNotFound, api.CodeNotFound,
			"There is nothing at this path; /openapi.yaml describes the API.")
	})
	return router
}

// frequentFirst passes writes of records and operations on leases to their handlers, and all else to the router. It
// avoids the regular expressions of these paths and of all paths before them, and the router's copies of the request:
// for a write they cost more than everything else that the gateway does.
func (g *Gateway) frequentFirst(router http.Handler) http.Handler {
	frequent := func(method, path string, handle handler) http.Handler {
		template := routeTemplate(path)
		return g.serving(template, ruleOf(method, template), handle)
	}
	writes := map[string]http.Handler{
		http.MethodPut:    frequent(http.MethodPut, recordRoute, g.putRecord),
		http.MethodDelete: frequent(http.MethodDelete, recordRoute, g.deleteRecord),
	}
	operations := map[string]http.Handler{}
	for name, handle := range g.leaseOperations() {
		operations[name] = frequent(http.MethodPost, lockRoute+"/"+name, handle)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var handler http.Handler
		if _, _, isRecord := cutRecord(r.URL.Path); isRecord {
			handler = writes[r.Method]
		} else if _, operation := cutLeaseOperation(r.URL.Path); r.Method == http.MethodPost {
			handler = operations[operation]
		}
		if handler == nil {
			handler = router
		}
		handler.ServeHTTP(w, r)
	})
}

// cutRecord returns the names in the path of a record. It finds the same as the regular expression of recordRoute.
func cutRecord(path string) (resource, key string, isRecord bool) {
	const before, between = "/v1/resources/", "/records/"
	names, ok := strings.CutPrefix(path, before)
	at := strings.LastIndex(names, between)
	if !ok || at < 0 {
		return "", "", false
	}
	return names[:at], names[at+len(between):], true
}

// cutLeaseOperation returns the lock and the last segment of a path below a lock; "" for other paths.
func cutLeaseOperation(path string) (lock, operation string) {
	rest, ok := strings.CutPrefix(path, "/v1/locks/")
	at := strings.LastIndexByte(rest, '/')
	if !ok || at < 0 {
		return "", ""
	}
	return rest[:at], rest[at+1:]
}

// pathVariable returns a variable of the route of a request; "" if it has no such variable.
func pathVariable(r *http.Request, name string) string {
	if variables := mux.Vars(r); variables != nil {
		return variables[name]
	}
	resource, key, _ := cutRecord(r.URL.Path) // the request did not pass the router
	lock, _ := cutLeaseOperation(r.URL.Path)
	switch name {
	case "resource":
		return resource
	case "key":
		return key
	case "lock":
		return lock
	}
	return ""
}

// route adds the handlers of a path. A request with another method is refused, and the answer names the known ones.
func (g *Gateway) route(router *mux.Router, path string, handlers methods) {
	var allowed []string
	template := routeTemplate(path)
	for _, method := range knownMethods {
		if handle := handlers[method]; handle != nil {
			router.Path(path).Methods(method).Handler(g.serving(template, ruleOf(method, template), handle))
			allowed = append(allowed, method)
		}
	}
	allow := strings.Join(allowed, ", ")
	router.Path(path).Handler(g.serving(template, public, func(w *answerWriter, _ *http.Request) error {
		w.Header().Set("Allow", allow)
		return problem(http.StatusMethodNotAllowed, api.CodeInvalidRequest, "This path takes "+allow+".")
	}))
}

// routeTemplate is a path as metrics show it, so that names don't become labels.
func routeTemplate(path string) string { return strings.ReplaceAll(path, anyText, "}") }

// methodOf returns the method if any path of the gateway has it: a client may send any word.
func methodOf(r *http.Request) string {
	if slices.Contains(knownMethods, r.Method) {
		return r.Method
	}
	return metrics.OtherMethod
}

// answering returns the handler of a request without a body, whose answer is what read returns. The context has the
// principal.
func (g *Gateway) answering(read func(context.Context, *http.Request) (any, error)) handler {
	return func(w *answerWriter, r *http.Request) error {
		answer, err := read(withPrincipal(g.work(r), w.principal), r)
		return answerJSON(w, answer, err)
	}
}

// answeringNamed returns the handler of a request without a body for one entity, which the path names.
func answeringNamed[Key any](
	g *Gateway, readKey func(*http.Request) (Key, error), read func(context.Context, Key) (any, error),
) handler {
	return g.answering(func(ctx context.Context, r *http.Request) (any, error) {
		key, err := readKey(r)
		if err != nil {
			return nil, err
		}
		if _, err := query(r); err != nil {
			return nil, err
		}
		return read(ctx, key)
	})
}

// action is a request with a JSON body. Most act on an entity, which the path names.
type action[Key, Body any] struct {
	w    *answerWriter
	r    *http.Request
	key  Key
	body Body
}

// acting returns the handler of an action. It reads the path and then the body, and answers with what act returns. The
// context is that of g.work.
func acting[Key, Body any](
	g *Gateway, readKey func(*http.Request) (Key, error), act func(context.Context, action[Key, Body]) (any, error),
) handler {
	return func(w *answerWriter, r *http.Request) error {
		key, err := readKey(r)
		if err != nil {
			return err
		}
		a := action[Key, Body]{w: w, r: r, key: key}
		if err := g.readJSON(w, r, &a.body); err != nil {
			return err
		}
		answer, err := act(g.work(r), a)
		return answerJSON(w, answer, err)
	}
}
