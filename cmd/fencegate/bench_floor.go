//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/mux"
)

// benchFloorCmd serves the path of a write with a handler that does nothing: what a gateway could reach on this machine if its work cost nothing.
type benchFloorCmd struct {
	Listen string `help:"Address to serve on." default:"127.0.0.1:8090"`
}

// Help is shown by --help.
func (benchFloorCmd) Help() string {
	return "Answers every write with 200 and does nothing: the floor that bench writes measures beside the gateway, which runs this by itself."
}

// Run serves until ctx ends.
func (c *benchFloorCmd) Run(ctx context.Context, streams streams) error {
	router := mux.NewRouter().SkipClean(true)
	router.Path("/v1/resources/{resource:(?s:.*)}/records/{key:(?s:.*)}").Methods(http.MethodPut).
		HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	_, _ = fmt.Fprintf(streams.out, "an empty handler serves on http://%s\n", listener.Addr())
	server := &http.Server{Handler: router, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
