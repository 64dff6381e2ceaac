//go:build unix

package chaos

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/await"
)

// signalBackends calls a function for the sessions of gateways, again and again.
func signalBackends(function string) func(*world, step) func() {
	return func(w *world, s step) func() {
		conn := connect(w.t, w.primary)
		defer func() { _ = conn.Close(context.Background()) }()
		for end := time.Now().Add(s.hold); time.Now().Before(end); time.Sleep(s.hold / 10) {
			execute(w.t, conn, "select "+function+`(pid) from pg_stat_activity
				where application_name = 'fencegate' and state = 'active' and random() < 0.5`)
		}
		return nil
	}
}

// connectionsExhausted takes all connections that are free, and those that gateways close.
func connectionsExhausted(w *world, s step) func() {
	var taken []*pgx.Conn
	for end := time.Now().Add(s.hold); time.Now().Before(end); {
		conn, err := pgx.Connect(await.Context(w.t), w.primary.URL())
		if err != nil {
			time.Sleep(s.hold / 10)
			continue
		}
		taken = append(taken, conn)
	}
	return func() {
		for _, conn := range taken {
			_ = conn.Close(context.Background()) // its error is that it was closed by the server
		}
	}
}

// reloads are settings that may change under running gateways without a loss.
var reloads = []struct{ setting, value, usual string }{
	{"synchronous_commit", "off", "on"},
	{"synchronous_commit", "remote_apply", "on"},
	{"statement_timeout", "30ms", "0"},
	{"lock_timeout", "10ms", "0"},
	{"idle_in_transaction_session_timeout", "20ms", "0"},
	{"client_min_messages", "error", "notice"},
	{"default_transaction_isolation", "serializable", "read committed"},
	{"jit", "off", "on"},
	{"wal_sender_timeout", "500ms", "60s"},
}

// settingsReloaded changes a setting, and terminates some sessions, since new ones start with it.
func settingsReloaded(w *world, s step) func() {
	change := reloads[s.target%len(reloads)]
	w.reload(w.primary, change.setting, change.value)
	signalBackends("pg_terminate_backend")(w, step{hold: s.hold / 2})
	return func() { w.reload(w.primary, change.setting, change.usual) }
}
