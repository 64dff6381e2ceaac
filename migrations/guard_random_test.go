package migrations_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

var randomDuration = flag.Duration("guard.duration", 0,
	"how long TestGuardAtRandom runs at each isolation level; 0: until it has seen every kind of answer")

const (
	randomSessions = 8
	randomRows     = 5 // of each resource, at least
)

// The locks that the sessions acquire: the resources, and for their subtrees the names above, too.
var (
	randomResources = []string{"journal/a/1", "journal/a/2", "journal/b/1"}
	randomSubtrees  = []string{"journal", "journal/a", "journal/a/1"}
)

// randomRun is what the sessions at one isolation level did.
type randomRun struct {
	url   string
	level pgx.TxIsoLevel
	until time.Time // at least; zero: until there is enough

	mu       sync.Mutex
	newest   map[string]int64 // by resource: the newest token of which an acquire has returned
	raised   chan struct{}    // closed by the next grant
	released map[int64]bool   // the tokens of which a release has returned
	written  map[string]int   // by resource: the transactions that were committed
	refused  map[string]int
	late     int // transactions whose snapshot was older than a newer grant
}

type randomLease struct {
	lock, id        string
	subtree         bool
	token, sequence int64
}

// TestGuardAtRandom checks that rows of a protected table change only under the newest token, whatever the sessions do
// at once: acquire resources and nested subtrees, exclusively or shared, release, write with tokens that are perhaps
// stale, by fence.guard of the resource or of the lock of a subtree lease, or by the setting, with snapshots that are
// older than a newer grant and with savepoints, and write without a token. The seed is logged. A run is not the same
// twice, since the server schedules the sessions.
func TestGuardAtRandom(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			run := randomRun{level: level, raised: make(chan struct{}), newest: map[string]int64{},
				released: map[int64]bool{}, written: map[string]int{}, refused: map[string]int{}}
			ctx := t.Context()
			if *randomDuration == 0 {
				t.Parallel()
				ctx = await.Context(t)
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			run.url = scripted(t, `
				create table journal (tree text, id integer, position bigint, token bigint, sequence bigint,
					primary key (tree, id, position));
				select fence.protect('journal', 'journal/{tree}/{id}')`)
			run.until = time.Now().Add(*randomDuration)
			group, ctx := errgroup.WithContext(ctx)
			for i := range randomSessions {
				group.Go(func() error { return run.session(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			t.Logf("committed: %v; refused: %v; older snapshots: %d", run.written, run.refused, run.late)
			conn := connect(t, run.url)
			for _, resource := range randomResources {
				run.check(t, conn, resource)
			}
		})
	}
}

// enough returns whether the run has seen every kind of answer, and enough rows.
func (r *randomRun) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range randomResources {
		if r.written[resource] < randomRows {
			return false
		}
	}
	for _, code := range []string{"LF101", "LF103", "LF106", "40001"} {
		if r.refused[code] == 0 && (code != "40001" || r.level != pgx.ReadCommitted) {
			return false
		}
	}
	return r.late >= randomRows && time.Now().After(r.until)
}

// session does random things until that is enough.
func (r *randomRun) session(ctx context.Context, random *rand.Rand) error {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var held []*randomLease // the newest first; perhaps lost
	for !r.enough() {
		if len(held) == 0 || random.IntN(5) == 0 {
			lease, err := r.acquire(ctx, conn, random)
			if err != nil {
				return err
			}
			if lease != nil {
				held = append([]*randomLease{lease}, held[:min(len(held), 2)]...)
			}
			continue
		}
		at := max(random.IntN(2*len(held))-len(held), 0) // the newest in half of the cases
		if random.IntN(10) == 0 {
			if err := r.release(ctx, conn, held[at]); err != nil {
				return err
			}
			continue
		}
		// A number is used again only where the transaction before was rolled back, or by mistake.
		if random.IntN(5) > 0 {
			held[at].sequence++
		}
		err := r.write(ctx, conn, random, *held[at])
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
				held = slices.Delete(held, at, at+1)
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

// acquire returns nil if another session's lease runs, or if a transaction wrote before it was admitted (40P01).
func (r *randomRun) acquire(ctx context.Context, conn *pgx.Conn, random *rand.Rand) (*randomLease, error) {
	lease := &randomLease{lock: randomResources[random.IntN(len(randomResources))], subtree: random.IntN(2) == 0}
	scope, mode := "node", "exclusive"
	if lease.subtree {
		lease.lock, scope = randomSubtrees[random.IntN(len(randomSubtrees))], "subtree"
	}
	if random.IntN(8) == 0 {
		mode = "shared"
	}
	err := conn.QueryRow(ctx, `
		select (a.lease).fencing_token, (a.lease).lease_id
		from fence.acquire_lease(fence.lease_request($1, 'owner', $2, $3, $4, null, null, null), 0, null) a
		where a.outcome = 'granted'`, lease.lock, mode, scope, 10+random.IntN(30)).Scan(&lease.token, &lease.id)
	var pgErr *pgconn.PgError
	if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &pgErr) && pgErr.Code == "40P01" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range lease.resources() {
		r.newest[resource] = max(r.newest[resource], lease.token)
	}
	close(r.raised)
	r.raised = make(chan struct{})
	return lease, nil
}

// resources returns what the lease is for.
func (l *randomLease) resources() []string {
	return slices.DeleteFunc(slices.Clone(randomResources), func(resource string) bool {
		return resource != l.lock && !(l.subtree && strings.HasPrefix(resource, l.lock+"/"))
	})
}

func (r *randomRun) release(ctx context.Context, conn *pgx.Conn, lease *randomLease) error {
	var status string
	err := conn.QueryRow(ctx, "select status from fence.release_lease($1, 'owner', $2, $3)", lease.lock, lease.id,
		lease.token).Scan(&status)
	var pgErr *pgconn.PgError
	if err != nil {
		if errors.As(err, &pgErr) && pgErr.Code == "40P01" {
			return nil
		}
		return err
	}
	if status == "released" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.released[lease.token] = true
	}
	return nil
}

// lost returns whether a newer token has been granted on the resource, or the lease released.
func (r *randomRun) lost(resource string, lease randomLease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest[resource] > lease.token || r.released[lease.token]
}

// awaitLoss waits a little for the next grants to be newer.
func (r *randomRun) awaitLoss(ctx context.Context, resource string, lease randomLease) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil {
		r.mu.Lock()
		raised, late := r.raised, r.newest[resource] > lease.token
		if late {
			r.late++
		}
		r.mu.Unlock()
		if late {
			return
		}
		select {
		case <-raised:
		case <-ctx.Done():
		}
	}
}

// write appends to the journal of a resource.
func (r *randomRun) write(ctx context.Context, conn *pgx.Conn, random *rand.Rand, as randomLease) error {
	resources := as.resources()
	resource := resources[random.IntN(len(resources))]
	_, row, _ := strings.Cut(resource, "/")
	tree, id, _ := strings.Cut(row, "/")
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: r.level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	guarded := resource
	if as.subtree && random.IntN(2) == 0 {
		guarded = as.lock // the trigger admits what lies below
	}
	guard := fmt.Sprintf("select fence.guard('%s', %d, %d)", guarded, as.token, as.sequence)
	statements := []string{fmt.Sprintf(`
		insert into journal select '%[1]s', %[2]s, 1 + coalesce(max(position), 0), %[3]d, %[4]d
		from journal where tree = '%[1]s' and id = %[2]s`, tree, id, as.token, as.sequence)}
	set := fmt.Sprintf("select fence.set_token(%d, %d)", as.token, as.sequence)
	admits := true
	switch random.IntN(10) {
	case 0: // without a token
		admits = false
	case 1: // the admission is rolled back
		statements = append([]string{"savepoint s", guard, "rollback to s"}, statements...)
		admits = false
	case 2: // by the trigger
		statements = append([]string{set}, statements...)
	case 3, 4, 5: // the snapshot is older than the admission
		if _, err := tx.Exec(ctx, "select 1 from journal limit 1"); err != nil {
			return err
		}
		r.awaitLoss(ctx, resource, as)
		statements = append([]string{[]string{guard, set}[random.IntN(2)]}, statements...)
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
	lost := r.lost(resource, as)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[resource]++
	if lost {
		return fmt.Errorf("%s: %d.%d of %s was committed after a newer grant, or its release, had returned (P3)",
			resource, as.token, as.sequence, as.lock)
	}
	return nil
}

// check checks the journal of a resource against what the sessions saw.
func (r *randomRun) check(t *testing.T, conn *pgx.Conn, resource string) {
	rows, err := conn.Query(t.Context(), `
		select token, sequence from journal where 'journal/' || tree || '/' || id = $1 order by position`, resource)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (write [2]int64, err error) {
		return write, row.Scan(&write[0], &write[1])
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(journal) != r.written[resource] {
		t.Errorf("%s has %d rows, and %d transactions were committed", resource, len(journal), r.written[resource])
	}
	for i := range journal {
		if i > 0 && slices.Compare(journal[i][:], journal[i-1][:]) <= 0 {
			t.Errorf("%s: %v follows %v", resource, journal[i], journal[i-1])
		}
	}
}
