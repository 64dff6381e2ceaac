package postgres_test

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

// writeSpec is a write whose tokens are known only when the leases have been granted.
type writeSpec func(s *fixture) store.Write

// tokenOf finds a token of a fixture.
type tokenOf func(s *fixture) int64

func none(*fixture) int64     { return 0 }
func first(s *fixture) int64  { return s.leases[0].Token }
func newest(s *fixture) int64 { return s.newest().Token }
func beyond(s *fixture) int64 { return s.newest().Token + 1 }
func below(s *fixture) int64  { return s.newest().Token - 1 }

func token(value int64) tokenOf { return func(*fixture) int64 { return value } }

// option says what is special about a write.
type option func(s *fixture, w *store.Write)

// with is the put of a value, unless an option says otherwise. Writes with equal options have equal content.
func with(token tokenOf, options ...option) writeSpec {
	return func(s *fixture) store.Write {
		write := store.Write{
			WriteToken: store.WriteToken{Resource: s.resource(), Token: token(s)},
			Operation:  store.Operation{Kind: store.Put, Key: "key", Value: []byte("value"), ContentType: "text/plain"},
		}
		for _, option := range options {
			option(s, &write)
		}
		return write
	}
}

// putOf is a put without a token.
func putOf(resource store.Name, value string) store.Write {
	return store.Write{
		WriteToken: store.WriteToken{Resource: resource},
		Operation:  store.Operation{Kind: store.Put, Key: "k", Value: []byte(value), ContentType: "text/plain"},
	}
}

func sequence(number int64) option {
	return func(_ *fixture, w *store.Write) { w.Sequence = &number }
}

// at writes to another resource: the lock with this behind it.
func at(suffix store.Name) option {
	return func(s *fixture, w *store.Write) { w.Resource = s.lock + suffix }
}

func key(name store.Name) option { return func(_ *fixture, w *store.Write) { w.Key = name } }

func value(text string) option { return func(_ *fixture, w *store.Write) { w.Value = []byte(text) } }

func contentType(text string) option {
	return func(_ *fixture, w *store.Write) { w.ContentType = text }
}

func expect(version int64) option { return func(_ *fixture, w *store.Write) { w.Expect = &version } }

func deletion(_ *fixture, w *store.Write) {
	w.Kind, w.Value, w.ContentType = store.Delete, nil, ""
}

func ownLeaseID(s *fixture, w *store.Write) { w.LeaseID = new(s.newest().ID) }

func firstLeaseID(s *fixture, w *store.Write) { w.LeaseID = new(s.leases[0].ID) }

func otherLeaseID(_ *fixture, w *store.Write) {
	w.LeaseID = new(uuid.MustParse("00000000-0000-4000-8000-000000000000"))
}

// wrote is an admitted write.
func wrote(specs ...writeSpec) step {
	return func(ctx context.Context, s *fixture) error {
		for _, spec := range specs {
			source := bySet
			if s.alone {
				source = byOne
			}
			if err := s.expectVerdict(ctx, source, spec(s), "admitted"); err != nil {
				return err
			}
		}
		return nil
	}
}

// rejected is a write that the rule does not admit.
func rejected(spec writeSpec, verdict string) step {
	return func(ctx context.Context, s *fixture) error {
		return s.expectVerdict(ctx, bySet, spec(s), verdict)
	}
}

// source is a way in for one write.
type source func(ctx context.Context, s *postgres.Store, w store.Write) (store.Result, error)

// bySet sends the write beside another one, which is refused and leaves no trace: a set of one takes the source byOne.
func bySet(ctx context.Context, s *postgres.Store, w store.Write) (store.Result, error) {
	other := store.Write{
		WriteToken: store.WriteToken{Resource: "another"},
		Operation:  store.Operation{Kind: store.Put, Key: "key", ContentType: "text/plain"},
	}
	results, err := s.Write(ctx, []store.Write{w, other})
	if err != nil {
		return store.Result{}, err
	}
	if results[1].Err == nil {
		return store.Result{}, errors.New("a write without a token beside it was admitted")
	}
	return results[0], nil
}

func byOne(ctx context.Context, s *postgres.Store, w store.Write) (store.Result, error) {
	results, err := s.Write(ctx, []store.Write{w})
	if err != nil {
		return store.Result{}, err
	}
	return results[0], nil
}

// transactionOf is a transaction of one write.
func transactionOf(w store.Write) store.Transaction {
	return store.Transaction{
		Tokens:     []store.WriteToken{w.WriteToken},
		Operations: []store.ResourceOperation{{Resource: w.Resource, Operation: w.Operation}},
	}
}

func byTransaction(ctx context.Context, s *postgres.Store, w store.Write) (store.Result, error) {
	result, err := s.Transact(ctx, transactionOf(w))
	var rejected *store.RejectedError
	switch {
	case errors.As(err, &rejected), errors.Is(err, store.ErrNotFound):
		return store.Result{Err: err}, nil
	case err != nil:
		return store.Result{}, err
	}
	return store.Result{Version: result.Versions[0], Replayed: result.Replayed}, nil
}

// verdictOf is an answer as the rule gives it: its code, the reason of token_stale, and whether it is a replay.
func verdictOf(answer storetest.Answer) string {
	return strings.TrimSpace(answer.Code + " " + answer.Reason + map[bool]string{true: "replayed"}[answer.Replayed])
}
