package gateway

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
)

// adds itself to http.DefaultServeMux, which nothing serves

// NewProfiles returns a handler of the profiles of this process, below /debug/pprof/, for a listener of its own. It has
// no authentication. It answers requests for allowedHosts only, and none that a page of another site has sent. It does
// not show the command line, which may have a password. It returns ErrInvalidConfig.
func NewProfiles(allowedHosts []string) (http.Handler, error) {
	allowed, err := parseHosts(allowedHosts)
	if err != nil {
		return nil, fmt.Errorf("%w: --allowed-hosts: %w", ErrInvalidConfig, err)
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("GET /debug/pprof/", pprof.Index) // and all that it lists: heap, allocs, goroutine, …
	profiles.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed != nil && !allowed.admit(r.Host) || endpoint.FromElsewhere(r) {
			http.Error(w, string(api.CodeUnknownHost), http.StatusMisdirectedRequest)
			return
		}
		profiles.ServeHTTP(w, r)
	}), nil
}
