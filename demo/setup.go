//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	unfencedTable = "fencegate_demo.unfenced"
	strikeTimeout = 10 * time.Second
)

// stage is what the story is played on: a gateway process, and a plain table beside its schema; or gateways that run anyway.
type stage struct {
	*narrator

	database *pgx.Conn
	gateway  *gatewayprocess.Process
	// urls are where the gateways are: A asks the first, B the last.
	urls []string
}

// setStage starts the gateway and makes the plain table.
func (z Zombie) setStage(ctx context.Context, narrator *narrator) (_ *stage, err error) {
	s := &stage{narrator: narrator}
	defer func() {
		if err != nil {
			s.strike()
		}
	}()
	narrator.tell(Event{Event: "database", Text: "the database: " + z.DatabaseName})
	if s.database, err = pgx.Connect(ctx, z.DatabaseURL); err != nil {
		return nil, fmt.Errorf("the demo's database: %w", err)
	}
	_, err = s.database.Exec(ctx, "create schema if not exists fencegate_demo; create table if not exists "+unfencedTable+" (resource text primary key, value text not null)")
	if err != nil {
		return nil, fmt.Errorf("the demo's plain table: %w", err)
	}
	if s.gateway, err = gatewayprocess.Start(ctx, z.Program, "--database-url", z.DatabaseURL); err != nil {
		return nil, err
	}
	s.urls = []string{s.gateway.URL}
	narrator.tell(Event{Event: "gateway", Text: "the gateway: " + s.gateway.URL})
	return s, nil
}

// strike clears the stage.
func (s *stage) strike() {
	if s.gateway != nil {
		_ = s.gateway.Stop()
	}
	if s.database != nil {
		ctx, cancel := context.WithTimeout(context.Background(), strikeTimeout)
		defer cancel()
		_, _ = s.database.Exec(ctx, "drop schema if exists fencegate_demo cascade")
		_ = s.database.Close(ctx)
	}
}

// follow tells what a process does until it has told of the event until, or has ended. A process that fails is an error.
func (s *stage) follow(variant string, p *process, until string) error {
	for event := range p.events {
		event.Variant = variant
		s.tell(event)
		if event.Event == until {
			return nil
		}
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("a worker failed: %w", err)
	}
	if until != "" {
		return errors.New("a worker ended too early")
	}
	return nil
}

func (s *stage) fencedValue(ctx context.Context, resource string) (string, error) {
	client, err := lockclient.New(s.urls[len(s.urls)-1])
	if err != nil {
		return "", err
	}
	defer client.Close()
	record, err := client.API().Get(ctx, resource, recordKey)
	return string(record.Value), err
}

func (s *stage) unfencedValue(ctx context.Context, resource string) (value string, err error) {
	err = s.database.QueryRow(ctx, "select value from "+unfencedTable+" where resource = $1", resource).Scan(&value)
	return value, err
}
