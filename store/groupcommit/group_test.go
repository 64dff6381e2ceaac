package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// narrow is a Group with one batch in flight in each lane: what is in the database holds up what comes behind it in the
// lane.
var narrow = groupcommit.Config{BatchesMax: 3}

// groupbed is a testbed with a Group, and traps in the database for what is written.
type groupbed struct {
	*enginetest.DB
	*groupcommit.Group
	tokens map[store.Name]int64
	plugs  [3]*pgxpool.Conn // what holds up the writes of a plug
}

// The values that the traps are for.
const (
	plug   = "plug 1" // stays in the database until it is pulled, though it waits for no lock
	plug2  = "plug 2"
	clog   = "clog 2" // waits for a lock there
	poison = "poison" // fails there
)

func newGroupbed(t *testing.T, config groupcommit.Config) *groupbed {
	t.Helper()
	b := enginetest.New(t)
	b.Exec(t, "create sequence public.tries")
	b.Exec(t, `create function public.trap() returns trigger language plpgsql as $$
		declare
			v_what constant text := convert_from(substr(new.value, 1, 6), 'LATIN1');
		begin
			if v_what like 'plug%' then
				while not pg_try_advisory_xact_lock(substr(v_what, 6)::integer) loop
					perform pg_sleep(0.002);
				end loop;
			elsif v_what like 'clog%' then
				perform pg_advisory_xact_lock(substr(v_what, 6)::integer);
			elsif v_what = 'poison' then
				raise 'this can not be stored' using errcode = '22000';
			end if;
			return new;
		end $$`)
	b.Exec(t, "create trigger trap before insert or update on fence.records for each row execute function public.trap()")
	// which a plug is not to run into
	b.Store = enginetest.OpenStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Minute})
	return &groupbed{DB: b, Group: newGroup(t, b.Store, config), tokens: map[store.Name]int64{}}
}

func newGroup(t *testing.T, on *postgres.Store, config groupcommit.Config) *groupcommit.Group {
	t.Helper()
	group, err := groupcommit.New(on, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	return group
}

// hold keeps plugs of this number in the database, until pull is called.
func (g *groupbed) hold(t *testing.T, number int) {
	t.Helper()
	conn, err := g.SQL.Acquire(t.Context())
	if err == nil {
		_, err = conn.Exec(t.Context(), "select pg_advisory_lock($1)", number)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.plugs[number] = conn
	t.Cleanup(func() { g.pull(t, number) })
}

func (g *groupbed) pull(t *testing.T, number int) {
	t.Helper()
	conn := g.plugs[number]
	if conn == nil {
		return
	}
	if _, err := conn.Exec(context.WithoutCancel(t.Context()), "select pg_advisory_unlock_all()"); err != nil {
		t.Error(err)
	}
	conn.Release()
	g.plugs[number] = nil
}

// put is a write under the lease that the test has of the resource, which is acquired if it has none.
func (g *groupbed) put(t *testing.T, resource store.Name, sequence int64, text string) store.Write {
	t.Helper()
	token := g.tokens[resource]
	if token == 0 {
		lease, err := g.Acquire(await.Context(t), store.AcquireRequest{Lock: resource, OwnerID: "w", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		token = lease.Token
		g.tokens[resource] = token
	}
	return store.Write{
		WriteToken: store.WriteToken{Resource: resource, Token: token, Sequence: &sequence},
		Operation:  store.Operation{Kind: store.Put, Key: "key", Value: []byte(text), ContentType: "text/plain"},
	}
}

// reply is what the caller of a write got.
type reply struct {
	result store.Result
	err    error
}

// submit returns where the verdict comes. A second one fails the test.
func (g *groupbed) submit(ctx context.Context, t *testing.T, write store.Write) <-chan reply {
	t.Helper()
	answers := make(chan reply, 1)
	var calls atomic.Int32
	g.Submit(ctx, write, func(result store.Result, err error) {
		if calls.Add(1) > 1 {
			t.Errorf("%s %d got a second verdict: %v (%v)", write.Resource, *write.Sequence, result, err)
			return
		}
		answers <- reply{result, err}
	})
	return answers
}

// submitAll submits writes one behind the other.
func (g *groupbed) submitAll(t *testing.T, writes ...store.Write) (answers []<-chan reply) {
	t.Helper()
	for _, write := range writes {
		answers = append(answers, g.submit(context.Background(), t, write))
	}
	return answers
}

// submitPlug returns when a plug waits in the database.
func (g *groupbed) submitPlug(t *testing.T, resource store.Name) <-chan reply {
	t.Helper()
	g.hold(t, 1)
	answers := g.submit(context.Background(), t, g.put(t, resource, 1, plug))
	g.awaitPlugged(t)
	return answers
}

const pluggedSQL = "from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"

// awaitPlugged returns when a plug stays in the database.
func (g *groupbed) awaitPlugged(t *testing.T) {
	t.Helper()
	await.True(t, "it is plugged", func() bool { return g.Count(t, "select count(*) "+pluggedSQL) > 0 })
}

// verdict waits for one.
func verdict(t *testing.T, answers <-chan reply) reply {
	t.Helper()
	select {
	case got := <-answers:
		return got
	case <-time.After(await.Limit):
		t.Fatal("there was no verdict")
		return reply{}
	}
}

// noVerdict expects that there is no verdict yet.
func noVerdict(t *testing.T, what string, answers <-chan reply) {
	t.Helper()
	select {
	case got := <-answers:
		t.Errorf("%s has a verdict already: %+v", what, got)
	default:
	}
}

// noVerdicts expects that there is none yet.
func noVerdicts(t *testing.T, answers []<-chan reply) {
	t.Helper()
	for i, answer := range answers {
		noVerdict(t, fmt.Sprint("write ", i+1), answer)
	}
}

// admittedInOrder expects that writes to one resource were applied in their order, as its first.
func admittedInOrder(t *testing.T, answers []<-chan reply) {
	t.Helper()
	for i, answer := range answers {
		if result := admitted(t, fmt.Sprint("write ", i+1), answer); result.Version != int64(i+1) {
			t.Errorf("write %d made version %d", i+1, result.Version)
		}
	}
}

// allAdmitted expects that writes were applied.
func allAdmitted(t *testing.T, answers []<-chan reply) {
	t.Helper()
	for i, answer := range answers {
		admitted(t, fmt.Sprint("write ", i), answer)
	}
}

// admitted expects the verdict of a write that was applied.
func admitted(t *testing.T, what string, answers <-chan reply) store.Result {
	t.Helper()
	got := verdict(t, answers)
	if got.err != nil || got.result.Err != nil {
		t.Errorf("%s returned %v (%v)", what, got.result.Err, got.err)
	}
	return got.result
}

// unavailable expects a write that could not be decided.
func unavailable(t *testing.T, what string, answers <-chan reply, outcome store.Outcome) reply {
	t.Helper()
	got := verdict(t, answers)
	if err := enginetest.Unavailable(got.err, outcome); err != nil {
		t.Errorf("%s: %v (%v)", what, err, got.result)
	}
	return got
}

// expectStored compares what is kept of resources.
func (g *groupbed) expectStored(t *testing.T, want map[store.Name]string) {
	t.Helper()
	for resource, text := range want {
		record, err := g.Record(await.Context(t), resource, "key")
		if errors.Is(err, store.ErrNotFound) {
			err, record.Value = nil, []byte("nothing")
		}
		if err != nil || string(record.Value) != text {
			t.Errorf("%s keeps %.20q (%v), want %.20q", resource, record.Value, err, text)
		}
	}
}

// newTracedGroup is a groupbed whose spans are received; nothing begins a trace but the test.
func newTracedGroup(t *testing.T, config groupcommit.Config) (*groupbed, *otlptest.Receiver, oteltrace.Tracer) {
	t.Helper()
	received, provider := otlptest.Start(t, 1)
	g := newGroupbed(t, config)
	g.Store = enginetest.OpenStore(t, postgres.Config{DatabaseURL: g.URL, Tracing: store.Tracing{Provider: provider}})
	g.Group = newGroup(t, g.Store, config)
	return g, received, provider.Tracer("test")
}

// A batch of several writes belongs to the trace of the first that is traced, and links to all that are; the others
// link to it.
func TestTraceOfABatch(t *testing.T) {
	g, received, tracer := newTracedGroup(t, narrow)
	before := g.submitPlug(t, "plugged")
	const writes = 100
	var answers []<-chan reply
	spans := map[string]oteltrace.Span{}
	for i := range writes {
		ctx := t.Context()
		if i%3 > 0 { // the others are not traced
			var span oteltrace.Span
			ctx, span = tracer.Start(t.Context(), "caller")
			spans[span.SpanContext().SpanID().String()] = span
		}
		answers = append(answers, g.submit(ctx, t, g.put(t, enginetest.Numbered("resource", i), 1, "x")))
	}
	await.True(t, "all wait", func() bool { return g.Stats().Queued == writes })
	g.pull(t, 1)
	admitted(t, "the plug", before)
	allAdmitted(t, answers)
	batch := received.Await(t, "the batch", func(s otlptest.Span) bool { return s.Name == "write batch" })
	statement := received.Await(t, "the statement", func(s otlptest.Span) bool { return s.Name == "query fence.write" })
	first := spans[batch.ParentID]
	if first == nil || first.SpanContext().TraceID().String() != batch.TraceID || statement.ParentID != batch.SpanID ||
		batch.Failed {
		t.Fatalf("the batch %+v has the statement %+v", batch, statement)
	}
	if len(batch.Links) != 64 || batch.Attributes["fencegate.batch.writes"] != "100" {
		t.Errorf("the batch has %d links: %+v", len(batch.Links), batch.Attributes)
	}
	for _, link := range batch.Links {
		if spans[link] == nil {
			t.Errorf("it links to %s, which is no write", link)
		}
	}
	for id, span := range spans {
		span.End()
		got := received.Await(t, "the caller", func(s otlptest.Span) bool { return s.SpanID == id })
		if want := []string{batch.SpanID}; id != batch.ParentID && !slices.Equal(got.Links, want) {
			t.Errorf("a write links to %q, want %q", got.Links, want)
		}
	}
}

// Where nothing has begun a trace, writes have no spans, and neither have their batches; sweeps and the record begin
// their own.
func TestTracesBegin(t *testing.T) {
	g, received, _ := newTracedGroup(t, narrow)
	admitted(t, "a write", g.submit(t.Context(), t, g.put(t, "job", 1, "x")))
	sweeper, err := postgres.NewSweeper(g.Store, postgres.SweeperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := postgres.NewRecorder(g.Store)
	recorder.Record(&store.RejectedError{Resource: "job", Key: "k", Verdict: store.VerdictTokenStale,
		Reason: "superseded", Token: 1}, "http", "192.0.2.1", "")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx, func(err error) { t.Error(err) }) })
	running.Go(func() { sweeper.Run(ctx, func(store.Swept) {}, func(err error) { t.Error(err) }) })
	record := received.Await(t, "the record", func(s otlptest.Span) bool { return s.Name == "record rejections" })
	sweep := received.Await(t, "a sweep", func(s otlptest.Span) bool { return s.Name == "sweep" })
	cancel()
	running.Wait()
	received.Await(t, "the record's statement", func(s otlptest.Span) bool {
		return s.ParentID == record.SpanID && s.Name == "query fence.record_rejections"
	})
	received.Await(t, "the sweep's statement", func(s otlptest.Span) bool {
		return s.ParentID == sweep.SpanID &&
			s.Name == "query fence.sweep"
	})
	for _, s := range []otlptest.Span{record, sweep} {
		if s.ParentID != "" || s.Failed {
			t.Errorf("got %+v", s)
		}
	}
	for _, s := range received.Spans() {
		if s.Name == "write batch" || s.Name == "query fence.write_one" {
			t.Errorf("this has no beginning: %+v", s)
		}
	}
}
