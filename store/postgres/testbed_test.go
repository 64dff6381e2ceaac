package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec"
	waiting "github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// testbed is an enginetest.DB with the checks of this package's tests.
type testbed struct{ *enginetest.DB }

func newTestbed(t testing.TB) *testbed {
	t.Helper()
	return &testbed{enginetest.New(t)}
}

func newCrashbed(t *testing.T, options ...pgtest.Option) (*testbed, *pgtest.Cluster) {
	t.Helper()
	b, cluster := enginetest.NewCrashing(t, options...)
	return &testbed{b}, cluster
}

// through returns the testbed with another Store on its database.
func (b *testbed) through(on *postgres.Store) *testbed {
	db := *b.DB
	db.Store = on
	return &testbed{&db}
}

// forget removes what former cases left.
func (b *testbed) forget(t testing.TB) {
	t.Helper()
	if err := b.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// clean is forget. It truncates nothing: all sessions would plan their statements anew.
func (b *testbed) clean(ctx context.Context) error {
	for _, table := range []string{"fences", "waiters", "leases", "sessions", "records", "policies"} {
		if _, err := b.SQL.Exec(ctx, "delete from fence."+table); err != nil {
			return err
		}
	}
	return nil
}

// granted acquires a lock that must be free.
func (b *testbed) granted(t testing.TB, request store.AcquireRequest) store.Lease {
	t.Helper()
	lease, err := b.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// session opens a session that lasts for an hour.
func (b *testbed) session(t testing.TB, owner string) store.Session {
	t.Helper()
	session, err := b.CreateSession(t.Context(), store.SessionRequest{OwnerID: owner, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// services are engines on a testbed.
type services struct {
	*enginetest.Engines
	bed *testbed
}

type (
	runningService = enginetest.Running
	outcome        = enginetest.Outcome
	moment         = enginetest.Moment
)

const (
	soon         = waiting.Limit
	never        = enginetest.Never
	beforeServer = enginetest.BeforeServer
	beforeClient = enginetest.BeforeClient
)

var (
	noPoll            = enginetest.NoPoll
	openStore         = enginetest.OpenStore
	runService        = enginetest.Run
	await             = waiting.True
	patient           = waiting.Context
	newSweeper        = enginetest.NewSweeper
	numbered          = enginetest.Numbered
	goAcquire         = enginetest.GoAcquire
	granted           = enginetest.Granted
	answered          = enginetest.Answered
	expectUnavailable = enginetest.Unavailable
)

func newCutter(t *testing.T, b *testbed) *enginetest.Cutter {
	t.Helper()
	return enginetest.NewCutter(t, b.DB)
}

func newServices(t *testing.T, b *testbed, count int, config engine.Config) *services {
	t.Helper()
	return &services{enginetest.NewEngines(t, b.DB, count, config), b}
}

// TestMain halves the number of random runs, which the command line can raise: each makes some hundred calls.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "50"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}

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
func verdictOf(answer spec.Answer) string {
	return strings.TrimSpace(answer.Code + " " + answer.Reason + map[bool]string{true: "replayed"}[answer.Replayed])
}

// sentinels are the errors that match the verdicts.
var sentinels = map[string]error{
	string(store.VerdictTokenRequired):   store.ErrTokenRequired,
	string(store.VerdictTokenUnknown):    store.ErrUnknownToken,
	string(store.VerdictTokenStale):      store.ErrStaleToken,
	string(store.VerdictLeaseMismatch):   store.ErrLeaseMismatch,
	string(store.VerdictLeaseExpired):    store.ErrLeaseExpired,
	string(store.VerdictVersionMismatch): store.ErrVersionMismatch,
	spec.CodeNotFound:                    store.ErrNotFound,
}

// expectVerdict sends a write through a source and compares the verdict, the data and the fence: an admitted write is
// in both, any other changed nothing at all (P5, P12).
func (s *fixture) expectVerdict(ctx context.Context, source source, write store.Write, want string) error {
	before, err := s.Dump(ctx)
	if err != nil {
		return err
	}
	fence, err := s.Fence(ctx, write.Resource)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	result, err := source(ctx, s.Store, write)
	if err != nil {
		return err
	}
	answer := spec.AnswerOfResult(result)
	if verdict := verdictOf(answer); verdict != want {
		return fmt.Errorf("token %d: the verdict is %q, want %q", write.Token, verdict, want)
	}
	if result.Err == nil && !result.Replayed {
		return s.expectApplied(ctx, write, result, fence)
	}
	after, err := s.Dump(ctx)
	if err != nil {
		return err
	}
	if err := enginetest.Trace(before, after); err != nil {
		return fmt.Errorf("%s: %w", want, err)
	}
	if result.Replayed {
		return s.expectRecord(ctx, write, result.Version)
	}
	return expectRejection(write, answer.Code, result.Err, fence)
}

// expectApplied compares record and fence with a write that was admitted on a fence.
func (s *fixture) expectApplied(ctx context.Context, write store.Write, result store.Result, before store.Fence) error {
	after, err := s.Fence(ctx, write.Resource)
	if err != nil {
		return err
	}
	want := before
	want.Resource, want.Policy = after.Resource, after.Policy
	want.LastSequence = 0
	if write.Sequence != nil {
		want.LastSequence = *write.Sequence
	}
	if before.LastToken == write.Token {
		want.LastSequence = max(want.LastSequence, before.LastSequence)
	}
	want.LastToken = write.Token
	if after != want {
		return fmt.Errorf("the fence is %+v, want %+v", after, want)
	}
	return s.expectRecord(ctx, write, result.Version)
}

// expectRecord compares the record with the write that gave it its version.
func (s *fixture) expectRecord(ctx context.Context, write store.Write, version int64) error {
	record, err := s.Record(ctx, write.Resource, write.Key)
	switch {
	case write.Kind == store.Delete && errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case write.Kind == store.Delete || version != record.Version || write.Token != record.Token ||
		!equal(write.Sequence, record.Sequence) || !bytes.Equal(write.Value, record.Value) ||
		int64(len(write.Value)) != record.Size || write.ContentType != record.ContentType:
		return fmt.Errorf("the record is %+v after %+v, want version %d", record, write, version)
	}
	return nil
}

// expectRejection compares the fields of an error with the write and the fence.
func expectRejection(write store.Write, verdict string, err error, fence store.Fence) error {
	for other, sentinel := range sentinels {
		if errors.Is(err, sentinel) != (other == verdict) {
			return fmt.Errorf("%s: whether it is %q is %v: %w", verdict, sentinel.Error(), other != verdict, err)
		}
	}
	var rejected *store.RejectedError
	if !errors.As(err, &rejected) {
		return nil // not found
	}
	if rejected.Resource != write.Resource || rejected.Token != write.Token || !equal(rejected.Sequence, write.Sequence) {
		return fmt.Errorf("the error is %+v for the write %+v", *rejected, write)
	}
	if rejected.Verdict != store.VerdictVersionMismatch && (rejected.GrantedToken != fence.GrantedToken ||
		rejected.LastToken != fence.LastToken || rejected.LastSequence != fence.LastSequence) {
		return fmt.Errorf("the error is %+v for the fence %+v", *rejected, fence)
	}
	return nil
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
