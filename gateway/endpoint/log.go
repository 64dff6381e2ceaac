package endpoint

import (
	"bytes"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store"
)

// logRequest is the access log: one in AccessLogSample requests and every failure at level info, all others at level
// debug. docs/operations.md documents the keys.
func (s *Server) logRequest(r *http.Request, route string, answer *Answer, took time.Duration) {
	level, weight := slog.LevelDebug, 1
	if n := s.AccessLogSample; n > 0 {
		switch {
		case answer.status >= http.StatusInternalServerError:
			level = slog.LevelInfo
		case s.requests.Add(1)%uint64(n) == 0:
			level, weight = slog.LevelInfo, n
		}
	}
	if !s.Logger.Enabled(r.Context(), level) {
		return
	}
	s.Logger.LogAttrs(r.Context(), level, "request",
		slog.String("method", r.Method), slog.String("route", route),
		slog.String("path", loggedPath(route, r.URL.Path)), slog.Int("status", answer.status),
		slog.String("code", string(answer.Code)), slog.String("reason", answer.reason),
		slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.String("address", s.Address(r)),
		slog.Int("weight", weight))
}

// Failure returns how to log an error that is not the client's fault; "" for other errors, and for overload, which
// metrics count.
func Failure(err error, code api.Code) (level slog.Level, message string) {
	provider, ofProvider := errors.AsType[*store.ProviderError](err)
	switch {
	case code == api.CodeInternal:
		return slog.LevelError, "request failed"
	case ofProvider && provider.Provider == store.ProviderRedlock:
		return slog.LevelWarn, "redlock unavailable"
	case ofProvider:
		return slog.LevelWarn, "redis unavailable"
	case errors.Is(err, store.ErrNotReplicated):
		return slog.LevelWarn, "commit not replicated"
	case code == api.CodeUnavailable && errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrOverloaded):
		return slog.LevelWarn, "database unavailable"
	}
	return 0, ""
}

// SessionsPath is the path of sessions. What follows it is a secret.
const SessionsPath = "/v1/sessions"

// redactPath removes secrets from a path: a session's ID, which is enough to end the session, and a whole API key where
// its ID was meant.
func redactPath(path string) string {
	if strings.Contains(path, apikey.Prefix) {
		path = wholeKey.ReplaceAllString(path, "…")
	}
	before, _, secret := strings.Cut(path, SessionsPath+"/")
	if !secret {
		return path
	}
	return before + SessionsPath + "/…"
}

// wholeKey matches an API key, or most of one.
var wholeKey = regexp.MustCompile(apikey.Prefix + `[0-9A-Za-z]{10}_[0-9A-Za-z]{20,}`)

// identifier matches a lease_id or a session_id.
var identifier = regexp.MustCompile(`[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)

// loggedPath returns a path as logs and spans may show it. A path without a route may be misspelt, with a secret
// anywhere in it.
func loggedPath(route, path string) string {
	if route == RouteNone {
		path = identifier.ReplaceAllString(path, "…")
	}
	return redactPath(path)
}

// ServerLog logs the messages of net/http about connections.
func ServerLog(logger *slog.Logger) *log.Logger { return log.New(serverLines{logger}, "", 0) }

type serverLines struct{ logger *slog.Logger }

// Write logs one line under a constant message; the text is in a key.
func (l serverLines) Write(line []byte) (int, error) {
	l.logger.Warn("HTTP server", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}
