package gateway

import (
	"bytes"
	"log"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// logRequest is the access log: one in AccessLogSample requests and every failure at level info, and all others at level debug. The keys are
// documented in docs/operations.md.
func (g *Gateway) logRequest(r *http.Request, route string, answer *answerWriter, took time.Duration) {
	level, weight := slog.LevelDebug, 1
	if n := g.config.AccessLogSample; n > 0 {
		switch {
		case answer.status >= http.StatusInternalServerError:
			level = slog.LevelInfo
		case g.requests.Add(1)%uint64(n) == 0:
			level, weight = slog.LevelInfo, n
		}
	}
	if !g.config.Logger.Enabled(r.Context(), level) {
		return
	}
	g.config.Logger.LogAttrs(r.Context(), level, "request",
		slog.String("method", r.Method), slog.String("route", route), slog.String("path", loggedPath(route, r.URL.Path)),
		slog.Int("status", answer.status), slog.String("code", string(answer.code)), slog.String("reason", answer.reason),
		slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.String("address", g.address(r)), slog.Int("weight", weight))
}

// discreet is a path without the secret that may stand in it: who knows a session's ID can end it.
func discreet(path string) string {
	const sessions = "/v1/sessions/"
	before, _, secret := strings.Cut(path, sessions)
	if !secret {
		return path
	}
	return before + sessions + "…"
}

// identifier is what a lease_id or a session_id looks like.
var identifier = regexp.MustCompile(`[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)

// loggedPath is a path as logs and spans may show it. Where there is no route, the path may be a misspelt one with a secret anywhere in it.
func loggedPath(route, path string) string {
	if route == routeNone {
		return identifier.ReplaceAllString(path, "…")
	}
	return discreet(path)
}

// serverLog takes what net/http has to say of connections.
func serverLog(logger *slog.Logger) *log.Logger { return log.New(serverLines{logger}, "", 0) }

type serverLines struct{ logger *slog.Logger }

// Write logs one line, always with the same message: what varies is in a key.
func (l serverLines) Write(line []byte) (int, error) {
	l.logger.Warn("HTTP server", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}
