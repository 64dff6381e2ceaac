// Package floor serves the path of a write with a handler that does nothing. It is the throughput that a gateway could
// reach on this machine if its work cost nothing.
package floor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/mux"
)

// Command is the subcommand of fencegate-bench that calls Serve.
const Command = "floor"

// Arguments returns the arguments that make fencegate-bench serve on an address.
func Arguments(address string) []string { return []string{Command, "--listen", address} }

// Serve answers every write with 200 until ctx ends.
func Serve(ctx context.Context, address string) error {
	router := mux.NewRouter().SkipClean(true)
	router.Path("/v1/resources/{resource:(?s:.*)}/records/{key:(?s:.*)}").Methods(http.MethodPut).
		HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", address, err)
	}
	server := &http.Server{Handler: router, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
