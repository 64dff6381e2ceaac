package writes

import (
	"context"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

const contentType = "application/octet-stream"

// committer is what groups writes: a engine.Engine, or a groupcommit.Group.
type committer interface {
	Commit(ctx context.Context, write store.Write) (store.Result, error)
	Submit(ctx context.Context, write store.Write, done func(store.Result, error))
}

// storeTarget writes through the store in this process.
func storeTarget(config store.Config) target {
	return target{name: nameStore, open: func(ctx context.Context, s setting) (session, error) {
		st, err := store.Open(ctx, config)
		if err != nil {
			return session{}, err
		}
		service, err := engine.New(st, engine.Config{})
		if err != nil {
			st.Close()
			return session{}, err
		}
		return session{write: committing(service, s), close: func() error {
			st.Close()
			return nil
		}}, nil
	}}
}

// committing hands writes over, and waits for the verdict on each.
func committing(group committer, s setting) writeFunc {
	if s.shared() {
		return submitting(group, s.clients)
	}
	return func(ctx context.Context, _ int, w *writer) error {
		r, value := w.next()
		r.sequence++
		result, err := group.Commit(ctx, numbered(r, value))
		if err == nil {
			err = result.Err
		}
		return err
	}
}

// submitting is for clients that share resources: the next write is numbered and handed over before the answer to the
// last.
func submitting(group committer, clients int) writeFunc {
	verdicts := make([]chan error, clients)
	for client := range verdicts {
		verdicts[client] = make(chan error, 1)
	}
	return func(ctx context.Context, client int, w *writer) error {
		r, value := w.next()
		verdict := verdicts[client]
		r.mu.Lock()
		r.sequence++
		group.Submit(ctx, numbered(r, value), func(result store.Result, err error) {
			if err == nil {
				err = result.Err
			}
			verdict <- err
		})
		r.mu.Unlock()
		return <-verdict
	}
}

// numbered is a write with the number that the resource is at.
func numbered(r *resource, value []byte) store.Write {
	sequence := r.sequence
	return store.Write{
		WriteToken: store.WriteToken{Resource: r.name, Token: r.token, Sequence: &sequence},
		Operation:  store.Operation{Kind: store.Put, Key: benchKey, Value: value, ContentType: contentType},
	}
}
