package gateway

import (
	_ "embed"
	"errors"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

//go:embed openapi.yaml
var openAPI []byte

// healthy says that the process runs, and no more: a database that is down is no reason to restart the gateway.
func healthy(w http.ResponseWriter, _ *http.Request) error {
	return answerJSON(w, http.StatusOK, api.Health{Status: "ok"})
}

// ready says whether the gateway can serve, and if not, what is wrong.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := g.work(r)
	defer cancel()
	err := g.backend.Ready(ctx)
	if err == nil {
		return answerJSON(w, http.StatusOK, api.Health{Status: "ready"})
	}
	answer := problemOf(ofRead(err))
	var unavailable *store.UnavailableError
	if errors.As(err, &unavailable) {
		answer.Detail = "The gateway can't serve: " + unavailable.Err.Error() + "."
	}
	return answer
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
	return nil
}
