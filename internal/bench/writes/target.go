package writes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

// target is what is measured: it writes a value to a resource.
type target struct {
	name  string
	write func(ctx context.Context, r *resource, value []byte) error
}

// resource is written by one client only, which numbers its writes.
type resource struct {
	name     store.Name
	token    int64
	sequence int64
}

const benchKey = "value"

func directTarget(pool *pgxpool.Pool) target {
	return target{"direct", func(ctx context.Context, r *resource, value []byte) error {
		_, err := pool.Exec(ctx, `
			insert into fencegate_bench.direct (resource, key, value) values ($1, $2, $3)
			on conflict (resource, key) do update set value = excluded.value`, r.name, benchKey, value)
		return err
	}}
}

func storeTarget(st *store.Store) target {
	return target{"store", func(ctx context.Context, r *resource, value []byte) error {
		r.sequence++
		sequence := r.sequence
		results, err := st.Write(ctx, []store.Write{{
			Claim:     store.Claim{Resource: r.name, Token: r.token, Sequence: &sequence},
			Operation: store.Operation{Kind: store.Put, Key: benchKey, Value: value, ContentType: "application/octet-stream"},
		}})
		if err == nil {
			err = results[0].Err
		}
		return err
	}}
}

// httpTarget writes through a gateway, over as many connections as there are clients.
func httpTarget(baseURL string, connections int) (target, error) {
	transport := &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections}
	client, err := lockclient.New(baseURL, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return target{}, fmt.Errorf("the gateway's URL: %w", err)
	}
	return target{"http", func(ctx context.Context, r *resource, value []byte) error {
		r.sequence++
		sequence := r.sequence
		_, err := client.API().Put(ctx, string(r.name), benchKey, lockclient.Write{
			Token: api.FencingToken{Token: r.token, Sequence: &sequence}, Value: value,
		})
		return err
	}}, nil
}
