package names

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// get reads a list.
func (d *database) get(ctx context.Context, path string, query map[string]string, answer any) error {
	return d.client.API().Call(ctx, lockclient.Call{Op: "read " + path, Path: path, Query: query}, answer)
}

// readOneName reads lists of one name, of which there are few entries.
func readOneName(ctx context.Context, d *database) ([]figure, error) {
	leases, err := repeated("leases of a lock", d.config.Calls, func() error {
		return d.get(ctx, "/v1/leases", map[string]string{"lock": d.free()}, nil)
	})
	if err != nil {
		return nil, err
	}
	records, err := repeated("records of a resource", d.config.Calls, func() error {
		_, err := d.client.API().Records(ctx, d.free(), lockclient.RecordsQuery{})
		return err
	})
	return append(leases, records...), err
}

// lists reads pages of locks.
func lists(ctx context.Context, d *database) ([]figure, error) {
	var before api.Locks
	if err := d.get(ctx, "/v1/locks", map[string]string{"prefix": d.middle(), "limit": "1"}, &before); err != nil {
		return nil, err
	}
	var figures []figure
	for _, list := range []struct {
		what  string
		query map[string]string
		calls int
	}{
		{"locks: the first page", nil, d.config.Calls},
		{"locks: a page in the middle", map[string]string{"cursor": before.NextCursor}, d.config.Calls},
		{"locks by prefix", map[string]string{"prefix": d.middle()[:len(prefix)+1]}, d.config.Calls},
		{"locks that are held: the first page", map[string]string{"state": "held"}, slowCalls},
		{"locks by contains, found among the first", map[string]string{"contains": "99"}, slowCalls},
	} {
		figure, err := repeated(list.what, list.calls, func() error {
			var page api.Locks
			if err := d.get(ctx, "/v1/locks", list.query, &page); err != nil {
				return err
			}
			if len(page.Locks) == 0 {
				return errors.New("the page is empty")
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure...)
	}
	return figures, nil
}

// count reads all names.
func count(ctx context.Context, d *database) ([]figure, error) {
	return repeated("number of locks (count=true)", 1, func() error {
		var page api.Locks
		if err := d.get(ctx, "/v1/locks", map[string]string{"count": "true", "limit": "1"}, &page); err != nil {
			return err
		}
		if page.Total == nil || *page.Total != int64(d.names) {
			return fmt.Errorf("the total is %v of %d", page.Total, d.names)
		}
		return nil
	})
}
