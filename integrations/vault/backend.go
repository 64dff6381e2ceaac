package vault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/lockclient"
)

// pageMax is the longest page of records that a gateway returns.
const pageMax = 1000

// Options configures a Backend. The zero value is a good choice.
type Options struct {
	// Resource is the name of the resource that keeps the entries. Default "vault".
	Resource string
	// LockTTL is how long after its last heartbeat an active node is replaced. Default 15 s.
	LockTTL time.Duration
	// WithoutHA lets Vault run a single node, which takes no lock.
	WithoutHA bool
}

// Backend is a storage backend. It is safe for concurrent use.
type Backend struct {
	client   *lockclient.Client
	resource string
	lockTTL  time.Duration
	ha       bool

	// changes lets single writes run beside each other, and a transaction alone, so that what it reads stays true.
	changes sync.RWMutex
	writer  writer
}

var (
	_ physical.FencingHABackend     = (*Backend)(nil)
	_ physical.TransactionalBackend = (*Backend)(nil)
	_ physical.TransactionalLimits  = (*Backend)(nil)
)

// New returns a backend. The client needs the scopes observe, lock and write on the resource, where gateways want
// credentials.
func New(client *lockclient.Client, options Options) *Backend {
	b := &Backend{
		client: client, resource: options.Resource, lockTTL: options.LockTTL, ha: !options.WithoutHA,
	}
	if b.resource == "" {
		b.resource = "vault"
	}
	if b.lockTTL == 0 {
		b.lockTTL = 15 * time.Second
	}
	b.writer.client, b.writer.resource = client, b.resource
	return b
}

// Put stores an entry.
func (b *Backend) Put(ctx context.Context, entry *physical.Entry) error {
	b.changes.RLock()
	defer b.changes.RUnlock()
	key, err := recordKey(entry.Key)
	if err != nil {
		return err
	}
	lease, err := b.writer.lease(ctx)
	if err != nil {
		return err
	}
	_, err = lease.Put(ctx, key, entry.Value)
	return refusal(err)
}

// Delete removes an entry, if there is one.
func (b *Backend) Delete(ctx context.Context, key string) error {
	b.changes.RLock()
	defer b.changes.RUnlock()
	key, err := recordKey(key)
	if err != nil {
		return err
	}
	lease, err := b.writer.lease(ctx)
	if err != nil {
		return err
	}
	_, err = lease.Delete(ctx, key)
	if errors.Is(err, lockclient.ErrNotFound) {
		return nil
	}
	return refusal(err)
}

// Get returns an entry, nil if there is none.
func (b *Backend) Get(ctx context.Context, key string) (*physical.Entry, error) {
	encoded, err := recordKey(key)
	if err != nil {
		return nil, err
	}
	record, err := b.client.API().Get(ctx, b.resource, encoded)
	if errors.Is(err, lockclient.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &physical.Entry{Key: key, Value: record.Value}, nil
}

// List returns what is directly below the prefix: the rest of each key, or its next segment with a slash.
func (b *Backend) List(ctx context.Context, prefix string) ([]string, error) {
	query := lockclient.RecordsQuery{Limit: pageMax}
	if slash := strings.LastIndex(prefix, "/"); slash >= 0 {
		query.Prefix = encodeKey(prefix[:slash]) + "/"
	}
	found := []string{}
	seen := map[string]bool{}
	for {
		page, err := b.client.API().Records(ctx, b.resource, query)
		if err != nil {
			return nil, err
		}
		for _, record := range page.Records {
			key, err := decodeKey(record.Key)
			if err != nil {
				return nil, err
			}
			below, is := strings.CutPrefix(key, prefix)
			if segment, _, deeper := strings.Cut(below, "/"); deeper {
				below = segment + "/"
			}
			if is && !seen[below] {
				seen[below] = true
				found = append(found, below)
			}
		}
		if page.NextCursor == "" {
			return found, nil
		}
		query.Cursor = page.NextCursor
	}
}

// refusal says in Vault's words that a value is too large.
func refusal(err error) error {
	if errors.Is(err, lockclient.ErrTooLarge) {
		return fmt.Errorf("%s: %w", physical.ErrValueTooLarge, err)
	}
	return err
}
