package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/await"
)

const (
	randomSessions  = 8
	randomResources = 3
	randomRows      = 10 // of each resource, at least
)

// randomRun is what the sessions of TestGuardAtRandom did.
type randomRun struct {
	url     string
	clock   atomic.Int64 // orders what the sessions see
	mu      sync.Mutex
	granted map[int][]randomEvent // by resource: when the acquire had returned
	written map[int][]randomEvent // when the COMMIT was sent that succeeded
	refused map[string]int
}

type randomEvent struct{ at, token, sequence int64 }

// TestGuardAtRandom checks that rows of a protected table change only under the newest token, whatever the sessions do
// at once: acquire, write with tokens that are perhaps stale, by fence.guard or by the setting, in all isolation levels
// and with savepoints, and write without a token. The seed is logged. A run is not the same twice, since the server
// schedules the sessions.
func TestGuardAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	run := randomRun{url: scripted(t, `
		create table journal (id integer, position bigint, token bigint, sequence bigint, primary key (id, position));
		select fence.protect('journal', 'journal/{id}')`),
		granted: map[int][]randomEvent{}, written: map[int][]randomEvent{}, refused: map[string]int{}}
	ctx := await.Context(t)
	var group errgroup.Group
	for i := range randomSessions {
		group.Go(func() error { return run.session(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("refused: %v", run.refused)
	conn := connect(t, run.url)
	for id := range randomResources {
		run.check(t, conn, id)
	}
}

// enough returns whether the run has seen every kind of answer, and enough rows.
func (r *randomRun) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range randomResources {
		if len(r.written[id]) < randomRows {
			return false
		}
	}
	return r.refused["LF101"] > 0 && r.refused["LF103"] > 0 && r.refused["LF106"] > 0 && r.refused["40001"] > 0
}

// session does random things until that is enough.
func (r *randomRun) session(ctx context.Context, random *rand.Rand) error {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	tokens := make([]randomEvent, randomResources)
	for !r.enough() {
		id := random.IntN(randomResources)
		if tokens[id].token == 0 || random.IntN(10) == 0 {
			if err := r.acquire(ctx, conn, id, &tokens[id]); err != nil {
				return err
			}
			continue
		}
		// A number is used again only where the transaction before was rolled back, or by mistake.
		if random.IntN(10) > 0 {
			tokens[id].sequence++
		}
		err := r.write(ctx, conn, random, id, tokens[id])
		var pgErr *pgconn.PgError
		if err != nil && !errors.As(err, &pgErr) {
			return err
		}
		if pgErr != nil {
			r.refuse(pgErr.Code)
			if !slices.Contains([]string{"LF101", "LF103", "LF106", "40001", "40P01", "23505"}, pgErr.Code) {
				return err
			}
			if pgErr.Code == "LF103" && random.IntN(2) == 0 {
				tokens[id] = randomEvent{}
			}
		}
	}
	return nil
}

func (r *randomRun) refuse(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[code]++
}

func (r *randomRun) acquire(ctx context.Context, conn *pgx.Conn, id int, held *randomEvent) error {
	var token *int64
	err := conn.QueryRow(ctx, `
		select (a.lease).fencing_token from fence.acquire_lease(fence.lease_request($1, gen_random_uuid()::text, 'exclusive',
			'node', 50, null, null, null), 0, null) a where a.outcome = 'granted'`, fmt.Sprintf("journal/%d", id)).
		Scan(&token)
	var pgErr *pgconn.PgError
	if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &pgErr) && pgErr.Code == "40P01" {
		return nil // another session's lease runs, or a transaction wrote before it was admitted
	}
	if err != nil {
		return err
	}
	*held = randomEvent{at: r.clock.Add(1), token: *token}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.granted[id] = append(r.granted[id], *held)
	return nil
}

// write appends to the journal of a resource.
func (r *randomRun) write(ctx context.Context, conn *pgx.Conn, random *rand.Rand, id int, as randomEvent) error {
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[random.IntN(len(levels))]})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	guard := fmt.Sprintf("select fence.guard('journal/%d', %d, %d)", id, as.token, as.sequence)
	statements := []string{fmt.Sprintf(`
		insert into journal select %[1]d, 1 + coalesce(max(position), 0), %[2]d, %[3]d from journal where id = %[1]d`,
		id, as.token, as.sequence)}
	admits := true
	switch random.IntN(8) {
	case 0: // without a token
		admits = false
	case 1: // the admission is rolled back
		statements = append([]string{"savepoint s", guard, "rollback to s"}, statements...)
		admits = false
	case 2: // by the trigger
		set := fmt.Sprintf("set local fencegate.token = '%d.%d'", as.token, as.sequence)
		statements = append([]string{set}, statements...)
	case 3: // the snapshot is older than the admission
		statements = append([]string{"select 1 from journal limit 1", guard}, statements...)
	default:
		statements = append([]string{"savepoint s", guard, "release s"}, statements...)
	}
	for _, statement := range statements {
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
		}
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if !admits {
		return errors.New("a row was written without an admission")
	}
	if random.IntN(6) == 0 {
		return nil // roll back
	}
	as.at = r.clock.Add(1)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[id] = append(r.written[id], as)
	return nil
}

// check checks the journal of a resource against what the sessions saw.
func (r *randomRun) check(t *testing.T, conn *pgx.Conn, id int) {
	rows, err := conn.Query(t.Context(), "select position, token, sequence from journal where id = $1 order by position", id)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e randomEvent, err error) {
		return e, row.Scan(&e.at, &e.token, &e.sequence)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(journal) != len(r.written[id]) {
		t.Errorf("resource %d has %d rows, and %d transactions were committed", id, len(journal), len(r.written[id]))
	}
	for i, row := range journal {
		if i > 0 && (row.token < journal[i-1].token ||
			row.token == journal[i-1].token && row.sequence <= journal[i-1].sequence) {
			t.Errorf("resource %d: %d.%d follows %d.%d", id, row.token, row.sequence,
				journal[i-1].token, journal[i-1].sequence)
		}
	}
	for _, write := range r.written[id] {
		for _, grant := range r.granted[id] {
			if grant.token > write.token && grant.at < write.at {
				t.Errorf("resource %d: the token %d was granted before %d.%d was committed (P3)", id, grant.token,
					write.token, write.sequence)
			}
		}
	}
}
