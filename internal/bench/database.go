package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// OtherDatabase is the URL of another database of the same server.
func OtherDatabase(databaseURL, name string) (string, error) {
	parsed, err := url.Parse(databaseURL)
	if err != nil || parsed.Scheme == "" {
		return "", errors.New("another database of the server needs a database URL that begins with postgres://")
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}

// Execute executes statements over a connection of its own.
func Execute(ctx context.Context, databaseURL string, statements ...string) (err error) {
	db, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range statements {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
