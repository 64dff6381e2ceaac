package postgres

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/await"
)

func TestMain(m *testing.M) {
	os.Exit(Main(m))
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(await.Context(t), url)
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close(context.Background())) })
	return conn
}

func execute(t testing.TB, url, sql string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), sql)
	check(t, err)
}

func queryValue[T any](t testing.TB, url, sql string) (value T) {
	t.Helper()
	check(t, connect(t, url).QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
