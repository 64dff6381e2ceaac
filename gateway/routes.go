package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// handler answers a request or returns the error that answerProblem turns into an answer.
type handler func(http.ResponseWriter, *http.Request) error

// methods are the handlers of one path.
type methods map[string]handler

// knownMethods are those that the handlers of a path may have, in the order in which Allow names them.
var knownMethods = []string{"GET", "HEAD", "PUT", "POST", "DELETE"}

// routeNone is the route of a path at which there is nothing.
const routeNone = "none"

// routes builds the router. Names are paths and may contain anything, newlines too: what is wrong with them is for
// the handlers to say. A more specific path stands before a less specific one.
func (g *Gateway) routes() *mux.Router {
	router := mux.NewRouter().SkipClean(true)
	const (
		lock     = "/v1/locks/{lock:(?s:.*)}"
		session  = "/v1/sessions/{session:(?s:.*)}"
		election = "/v1/elections/{election:(?s:.*)}"
		resource = "/v1/resources/{resource:(?s:.*)}"
	)
	const record = resource + "/records/{key:(?s:.*)}"
	g.shortRoute(router, "PUT", record, g.putRecord)
	g.shortRoute(router, "DELETE", record, g.deleteRecord)

	g.route(router, lock+"/acquire", methods{"POST": onNamed(g, lockName, g.acquire)})
	g.route(router, lock+"/renew", methods{"POST": onNamed(g, lockName, g.renew)})
	g.route(router, lock+"/release", methods{"POST": onNamed(g, lockName, g.release)})
	g.route(router, lock+"/break", methods{"POST": onNamed(g, lockName, g.breakLease)})
	g.route(router, lock+"/watch", methods{"GET": g.watchLock})
	g.route(router, lock, methods{"GET": g.showing(lockName, g.getLock)})
	g.route(router, "/v1/locks", methods{"GET": g.listLocks})

	g.route(router, session+"/keepalive", methods{"POST": g.keepSessionAlive})
	g.route(router, session, methods{"GET": g.getSession, "DELETE": g.endSession})
	g.route(router, "/v1/sessions", methods{"GET": g.listSessions, "POST": g.createSession})
	g.route(router, "/v1/leases", methods{"GET": g.listLeases})
	g.route(router, "/v1/waits", methods{"GET": g.showWaits})

	g.route(router, election+"/campaign", methods{"POST": onNamed(g, electionName, g.campaign)})
	g.route(router, election+"/resign", methods{"POST": onNamed(g, electionName, g.resign)})
	g.route(router, election+"/observe", methods{"GET": g.observe})
	g.route(router, election, methods{"GET": g.showing(electionName, g.getElection)})
	g.route(router, "/v1/elections", methods{"GET": g.listElections})

	g.route(router, record, methods{"PUT": g.putRecord, "DELETE": g.deleteRecord, "GET": g.getRecord, "HEAD": g.getRecord})
	g.route(router, resource+"/records", methods{"GET": g.listRecords})
	g.route(router, resource+"/fence", methods{"GET": g.showing(resourceName, g.getFence)})
	g.route(router, "/v1/transactions", methods{"POST": g.transact})
	g.route(router, "/v1/writes", methods{"POST": g.bulk})

	g.route(router, "/v1/policies/{prefix:(?s:.*)}", methods{"GET": g.getPolicy, "PUT": g.putPolicy, "DELETE": g.deletePolicy})
	g.route(router, "/v1/policies", methods{"GET": g.listPolicies})
	g.route(router, "/v1/rejections/summary", methods{"GET": g.summarizeRejections})
	g.route(router, "/v1/rejections/stream", methods{"GET": g.streamRejections})
	g.route(router, "/v1/rejections", methods{"GET": g.listRejections})

	g.route(router, "/v1/overview/stream", methods{"GET": g.streamOverview})
	g.route(router, "/v1/overview", methods{"GET": g.getOverview})

	g.route(router, "/healthz", methods{"GET": healthy})
	g.route(router, "/readyz", methods{"GET": g.ready})
	g.route(router, "/metrics", methods{"GET": g.metrics.serve})
	g.route(router, "/openapi.yaml", methods{"GET": serveOpenAPI})

	g.route(router, "/ui/{file:(?s:.*)}", methods{"GET": g.dashboardFile, "HEAD": g.dashboardFile})
	g.route(router, "/", methods{"GET": g.dashboard, "HEAD": g.dashboard})

	router.NotFoundHandler = g.answering(routeNone, "", func(http.ResponseWriter, *http.Request) error {
		return problem(http.StatusNotFound, api.CodeNotFound, "There is nothing at this path; /openapi.yaml describes what there is.")
	})
	return router
}

// shortRoute is a fast path to the handler of a method of a record, past the regular expressions of its path and of all those that stand
// before it: they cost more than all else that the gateway does for a write. The name of the route is the operation.
func (g *Gateway) shortRoute(router *mux.Router, method, path string, handle handler) {
	label := routeLabel(path)
	router.MatcherFunc(onRecord(method)).Name(method + " " + label).Handler(g.answering(label, method, handle))
}

// onRecord matches what the path of a record does.
func onRecord(method string) mux.MatcherFunc {
	const before, between = "/v1/resources/", "/records/"
	return func(r *http.Request, match *mux.RouteMatch) bool {
		if r.Method != method {
			return false
		}
		names, ok := strings.CutPrefix(r.URL.Path, before)
		at := strings.LastIndex(names, between)
		if !ok || at < 0 {
			return false
		}
		match.Vars = map[string]string{"resource": names[:at], "key": names[at+len(between):]}
		return true
	}
}

// route adds the handlers of a path, and says which methods there are to a request with another.
func (g *Gateway) route(router *mux.Router, path string, handlers methods) {
	var allowed []string
	label := routeLabel(path)
	for _, method := range knownMethods {
		if handle := handlers[method]; handle != nil {
			router.Path(path).Methods(method).Handler(g.answering(label, method, handle))
			allowed = append(allowed, method)
		}
	}
	allow := strings.Join(allowed, ", ")
	router.Path(path).Handler(g.answering(label, "", func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Allow", allow)
		return problem(http.StatusMethodNotAllowed, api.CodeInvalidRequest, "This path takes "+allow+".")
	}))
}

// readName reads the name that stands in a path.
type readName func(*http.Request) (store.Name, error)

// onNamed is the handler of an action on what is named in the path: it reads the name and the body, and answers with what the action
// returns.
func onNamed[Body any](g *Gateway, readName readName, action func(http.ResponseWriter, *http.Request, store.Name, Body) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := readName(r)
		if err != nil {
			return err
		}
		var body Body
		if err := g.readJSON(w, r, &body); err != nil {
			return err
		}
		answer, err := action(w, r, name, body)
		if err != nil {
			return err
		}
		return answerJSON(w, http.StatusOK, answer)
	}
}

// showing is the handler that shows one thing, whose name stands in the path.
func (g *Gateway) showing(readName readName, read func(context.Context, store.Name) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := readName(r)
		if err != nil {
			return err
		}
		if _, err := query(r); err != nil {
			return err
		}
		ctx, cancel := g.work(r)
		defer cancel()
		answer, err := read(ctx, name)
		if err != nil {
			return err
		}
		return answerJSON(w, http.StatusOK, answer)
	}
}

// routeLabel is the template of a path as metrics show it, so that names don't become labels.
func routeLabel(template string) string { return strings.ReplaceAll(template, ":(?s:.*)", "") }
