package main

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestAtAddress checks that only the address of a database changes.
func TestAtAddress(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://gateway:p%40ss@coordinator:5432/app?sslmode=disable",
		"host=coordinator port=5432 user=gateway password=p@ss dbname=app sslmode=disable",
	} {
		at, err := atAddress(url, "worker-1:6432")
		if err != nil {
			t.Fatal(err)
		}
		config, err := pgx.ParseConfig(at)
		if err != nil || config.Host != "worker-1" || config.Port != 6432 || config.User != "gateway" ||
			config.Password != "p@ss" || config.Database != "app" {
			t.Errorf("%s became %s: %v", url, at, err)
		}
	}
}
