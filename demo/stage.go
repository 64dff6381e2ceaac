//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/lockclient"
)

const (
	unfencedTable  = "fencegate_demo.unfenced"
	gatewayTimeout = 10 * time.Second
)

// stage is what the story is played on: a gateway process, and a plain table beside its schema.
type stage struct {
	*narrator

	gatewayURL string
	database   *pgx.Conn
	gateway    *exec.Cmd
	dir        string
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
	if err = s.startGateway(ctx, z); err != nil {
		return nil, err
	}
	narrator.tell(Event{Event: "gateway", Text: "the gateway: " + s.gatewayURL})
	return s, nil
}

// startGateway runs a gateway as a process of its own, and waits until it serves.
func (s *stage) startGateway(ctx context.Context, z Zombie) (err error) {
	if s.dir, err = os.MkdirTemp("", "fencegate-demo-"); err != nil {
		return err
	}
	ready := filepath.Join(s.dir, "ready")
	log := &strings.Builder{}
	s.gateway = exec.CommandContext(ctx, z.Program, "serve", "--listen", "127.0.0.1:0", "--ready-file", ready) //nolint:gosec // this program itself
	s.gateway.Env = append(os.Environ(), "FENCEGATE_DATABASE_URL="+z.DatabaseURL)
	s.gateway.Stderr = log
	if err := s.gateway.Start(); err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	deadline := time.Now().Add(gatewayTimeout)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		url, err := os.ReadFile(ready) //nolint:gosec // in the directory made above
		if err == nil {
			s.gatewayURL = strings.TrimSpace(string(url))
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stopGateway()
	return fmt.Errorf("the gateway does not serve:\n%s", log)
}

func (s *stage) stopGateway() {
	if s.gateway != nil && s.gateway.Process != nil {
		_ = s.gateway.Process.Signal(syscall.SIGTERM)
		_ = s.gateway.Wait()
		s.gateway = nil
	}
}

// strike clears the stage.
func (s *stage) strike() {
	s.stopGateway()
	if s.database != nil {
		ctx, cancel := context.WithTimeout(context.Background(), gatewayTimeout)
		defer cancel()
		_, _ = s.database.Exec(ctx, "drop schema if exists fencegate_demo cascade")
		_ = s.database.Close(ctx)
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// follow tells what a process does until it has told of the event until, or has ended. A process that fails is an error.
func (s *stage) follow(story string, p *process, until string) error {
	for event := range p.events {
		event.Story = story
		s.tell(event)
		if event.Event == until {
			return nil
		}
	}
	err := p.wait()
	p.ended <- err // for whoever asks again
	if err != nil {
		return fmt.Errorf("a worker failed: %w", err)
	}
	if until != "" {
		return errors.New("a worker ended too early")
	}
	return nil
}

func (s *stage) fencedValue(ctx context.Context, resource string) (string, error) {
	client, err := lockclient.New(s.gatewayURL)
	if err != nil {
		return "", err
	}
	record, err := client.Get(ctx, resource, recordKey)
	return string(record.Value), err
}

func (s *stage) unfencedValue(ctx context.Context, resource string) (value string, err error) {
	err = s.database.QueryRow(ctx, "select value from "+unfencedTable+" where resource = $1", resource).Scan(&value)
	return value, err
}
