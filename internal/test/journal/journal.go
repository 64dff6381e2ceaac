// Package journal checks histories: what the clients of a load saw while gateways and databases broke, against what the
// database has in the end. Tests that break something use it.
//
// Journal keeps what was sent, when, and what was answered. When the load has ended and every fault is healed,
// Journal.Check compares that with the database. checkHistory is a pure function of the two. Most of what it looks at
// are properties P1 to P5 and P9 to P12 of the product's contract.
//
// A client writes each record under a key of its own, so that none can hide another. A resource's versions then are 1,
// 2, 3, … with one record each, and a write that was lost or applied twice leaves a hole. A client that got no answer
// sends the same numbered write, by another gateway, until its outcome is known. A client whose answer was that nothing
// was changed sometimes leaves it at that, and the record must not be there.
//
// A lease on a subtree counts for every name below. A row of a protected table is one write, as a record is.
//
// A failover without synchronous replication, or a restored backup, loses by design what the new database never had.
// Journal.Lost names the time in which that was answered. Even then tokens must rise, and nothing that the new database
// has acknowledged may be missing.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// history is what clients saw. Times are since the begin of the journal.
type history struct {
	grants []grant
	writes []write
	losses []loss
}

// loss is a failover or a restore that takes back, by design, what was answered in this time.
type loss struct{ from, to time.Duration }

// mayBeLost reports whether what was answered at a time may be gone.
func (h *history) mayBeLost(answered time.Duration) bool {
	return slices.ContainsFunc(h.losses, func(l loss) bool { return l.from <= answered && answered <= l.to })
}

// grant is a lease that an acquire returned. Sent is when its acquire was first sent.
type grant struct {
	lock, owner, leaseID string
	subtree              bool
	token                int64
	sent, answered       time.Duration
}

// write is one numbered write, however often it was sent.
type write struct {
	resource, key   string
	token, sequence int64
	value           string
	outcome         outcome
	mustFail        string // why it must be refused, whenever it comes; "" if it may be admitted

	// Of the attempt that was answered for good: when it was sent and answered, and what an acknowledgement said.
	sent, answered time.Duration
	version        int64
	replayed       bool
}

// outcome is what a client knows in the end of a write.
type outcome int

const (
	acknowledged outcome = iota
	// notApplied was refused, or failed with the outcome not_applied, each time it was sent: it must have left no trace.
	notApplied
	// doubtful was refused or given up after an attempt of unknown outcome: it may have been applied, once.
	doubtful
)

// Journal is what the clients of a load saw. It is the load's Observer, and safe for concurrent use.
type Journal struct {
	// Rows is a query of the rows of protected tables that were written under names with the prefix $1: resource, key,
	// value, token, sequence and time, in the order of tokens and sequences. Each row is one write, by SQL. "" if there are
	// none.
	Rows string

	begun time.Time

	mu           sync.Mutex
	history      history
	acks         map[string]int // by the kind of the values
	unexpected   []string       // what no fault explains
	unavailables int
}

// New returns an empty journal, which begins now.
func New() *Journal { return &Journal{begun: time.Now(), acks: map[string]int{}} }

// Now is the time since its begin.
func (j *Journal) Now() time.Duration { return time.Since(j.begun) }

// Granted notes a lease.
func (j *Journal) Granted(lease api.Lease, sent, answered time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.grants = append(j.history.grants, grant{
		lock: lease.Lock, owner: lease.OwnerID, leaseID: lease.LeaseID, token: lease.FencingToken,
		subtree: lease.Scope == "subtree", sent: sent, answered: answered,
	})
}

// Wrote notes a write.
func (j *Journal) Wrote(w load.Write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	outcome := notApplied
	switch {
	case w.Applied:
		outcome = acknowledged
		j.acks[kindOf(w.Value)]++
	case w.Doubtful:
		outcome = doubtful
	}
	j.history.writes = append(j.history.writes, write{
		resource: w.Resource, key: w.Key, value: w.Value, token: w.Token, sequence: w.Sequence,
		outcome: outcome, sent: w.Sent, answered: w.Answered, version: w.Version, replayed: w.Replayed,
		mustFail: w.MustFail,
	})
}

// Unavailable counts an answer that faults explain. It must say whether the call was applied.
func (j *Journal) Unavailable(err error) {
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Outcome == "" {
		j.Unexpected(fmt.Sprintf("unavailable without an outcome: %v", err))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unavailables++
}

// Unexpected notes an answer that no fault explains.
func (j *Journal) Unexpected(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unexpected = append(j.unexpected, what)
}

// Progress returns how many writes of an Exercise were acknowledged so far, and whether all answers were expected ones.
func (j *Journal) Progress() (acks int, sound bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acks[byPut] + j.acks[byTransaction], len(j.unexpected) == 0
}

// ProgressOf is Progress for the writes whose values Value made of this kind.
func (j *Journal) ProgressOf(kind string) (acks int, sound bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acks[`"`+kind+" "], len(j.unexpected) == 0
}

// Lost notes that what was answered from one time to another may be gone, by design: a standby that lacked it was
// promoted, or a backup from before was restored. What was answered later was answered by the new database.
func (j *Journal) Lost(from, to time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.losses = append(j.history.losses, loss{from, to})
}

// Summary says what the load was made of.
func (j *Journal) Summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	outcomes := map[outcome]int{}
	replayed := 0
	for _, w := range j.history.writes {
		outcomes[w.outcome]++
		if w.replayed {
			replayed++
		}
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(j.acks)) {
		kinds = append(kinds, fmt.Sprintf("%d by %s", j.acks[kind], strings.Trim(kind, `" `)))
	}
	return fmt.Sprintf(
		"%d grants; %d writes acknowledged (%s), %d of them as replays, %d not applied, %d doubtful; unavailable %d times",
		len(j.history.grants), outcomes[acknowledged], strings.Join(kinds, ", "), replayed, outcomes[notApplied],
		outcomes[doubtful], j.unavailables)
}

// Check compares what clients saw with what the database has, and returns what contradicts the contract, and the
// answers that no fault explains. No client is at work any more, and the load's names begin with prefix.
func (j *Journal) Check(ctx context.Context, db *pgxpool.Pool, prefix string) ([]string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := readState(ctx, db, prefix, j.Rows)
	if err != nil {
		return nil, fmt.Errorf("read what the database has: %w", err)
	}
	if len(j.history.grants) == 0 || len(j.history.writes) == 0 {
		return nil, errors.New("nothing was done")
	}
	unfit, err := checkRows(ctx, db)
	return slices.Concat(j.unexpected, checkHistory(j.history, stored), unfit), err
}

// checkRows returns what contradicts itself in the database, by the checks that operators have.
func checkRows(ctx context.Context, db *pgxpool.Pool) (errors []string, err error) {
	err = db.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		found, err := checks.Run(ctx, conn.Conn(), checks.OfRows)
		for _, f := range found {
			if f.Severity == checks.Error {
				errors = append(errors, fmt.Sprintf("%s: %s: %s", f.Subject, f.Check, f.Detail))
			}
		}
		return err
	})
	return errors, err
}

// leaseTTLMS is the TTL of a load's leases. It is short enough for abandoned leases to expire while a load lasts.
const leaseTTLMS = 200

// Exercise returns the load of clients that contend for locks, and note in the journal what they see. The caller adds
// the gateways.
func (j *Journal) Exercise(clients int, locks []string, finishWithin time.Duration) load.Exercise {
	return load.Exercise{
		Clients: clients, Locks: locks, Observer: j, TTLMS: leaseTTLMS, FinishWithin: finishWithin,
		Compose: compose, Put: Send,
	}
}

// compose makes a put of one record, or a transaction that puts three.
func compose(random *rand.Rand, number, owner string) (key, value string) {
	key, value = Put(number, owner)
	if random.IntN(2) == 0 {
		value = byTransaction + strings.TrimPrefix(value, byPut)
	}
	return key, value
}

// Put returns the key and the value of a numbered write that puts one record.
func Put(number, owner string) (key, value string) { return Value("put", number, owner) }

// Value returns the key and the value of a numbered write of one record or row. The kind is a word that says how it came.
func Value(kind, number, owner string) (key, value string) {
	return ownPrefix + number, `"` + kind + " " + number + " by " + owner + `"`
}

// kindOf returns what a value begins with: its kind.
func kindOf(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind + " "
}

// Send sends a write by the source that its value names.
func Send(ctx context.Context, to *lockclient.API, resource, key string, w lockclient.Write) (api.WriteResult, error) {
	if !strings.HasPrefix(string(w.Value), byTransaction) {
		return to.Put(ctx, resource, key, w)
	}
	value := json.RawMessage(w.Value)
	result, err := to.Transaction(ctx, api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: resource, FencingToken: &w.Token.Token, Sequence: w.Token.Sequence}},
		Ops: []api.Op{
			{Op: "put", Resource: resource, Key: key, Value: value},
			{Op: "put", Resource: resource, Key: otherKey(key), Value: value},
			{Op: "put", Resource: resource, Key: lastKey, Value: value},
		},
	})
	if err != nil {
		return api.WriteResult{}, err
	}
	return api.WriteResult{Version: result.Results[0].Version, Replayed: result.Replayed}, nil
}

// readState reads what the database keeps of the names with a prefix, as of one moment. For rows see Journal.
func readState(ctx context.Context, db *pgxpool.Pool, prefix, rows string) (state, error) {
	s := state{fences: map[string]storedFence{}}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		err := readTables(ctx, tx, prefix, &s)
		if err == nil && rows != "" {
			err = readRows(ctx, tx, rows, prefix, &s)
		}
		return err
	})
	return s, err
}

// readRows reads the rows of protected tables. Their resources have no records. A row has no version: its place in the
// order of numbers is one, and the fence counts none.
func readRows(ctx context.Context, tx pgx.Tx, query, prefix string, s *state) error {
	rows, err := tx.Query(ctx, query, prefix)
	if err != nil {
		return err
	}
	var r storedRecord
	columns := []any{&r.resource, &r.key, &r.value, &r.token, &r.sequence, &r.updatedAt}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		f := s.fences[r.resource]
		f.lastVersion++
		r.version, s.fences[r.resource] = f.lastVersion, f
		s.records = append(s.records, r)
		return nil
	})
	return errors.Join(err, rows.Err())
}

func readTables(ctx context.Context, tx pgx.Tx, prefix string, s *state) error {
	leases, err := tx.Query(ctx, `
		select lock, owner_id, lease_id::text, fencing_token, mode = 'shared', scope = 'subtree', granted_at,
			coalesce(ended_at, fence.runs_until(l))
		from fence.leases l where starts_with(lock, $1)`, prefix)
	if err != nil {
		return err
	}
	s.leases, err = pgx.CollectRows(leases, func(row pgx.CollectableRow) (l storedLease, err error) {
		return l, row.Scan(&l.lock, &l.owner, &l.leaseID, &l.token, &l.shared, &l.subtree, &l.grantedAt, &l.endsAt)
	})
	if err != nil {
		return err
	}
	records, err := tx.Query(ctx, `
		select resource, key, version, fencing_token, coalesce(sequence, 0), convert_from(value, 'UTF8'), updated_at
		from fence.records where starts_with(resource, $1)`, prefix)
	if err != nil {
		return err
	}
	s.records, err = pgx.CollectRows(records, func(row pgx.CollectableRow) (r storedRecord, err error) {
		return r, row.Scan(&r.resource, &r.key, &r.version, &r.token, &r.sequence, &r.value, &r.updatedAt)
	})
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		select resource, granted_token, last_token, last_sequence, last_version from fence.fences
		where starts_with(resource, $1)`, prefix)
	if err != nil {
		return err
	}
	var name string
	var f storedFence
	columns := []any{&name, &f.grantedToken, &f.lastToken, &f.lastSequence, &f.lastVersion}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		s.fences[name] = f
		return nil
	})
	return errors.Join(err, rows.Err())
}

// Cost is what a failover did to a history.
type Cost struct {
	Acknowledged int // writes
	Lost         int // of these, those that the database does not have
	Tokens       int // those that were granted twice, or after a greater one
	Admitted     int // writes with a token lower than one that had been granted
}

// Cost compares what clients saw with what the database has, where it may have lost commits. No client is at work any
// more.
func (j *Journal) Cost(ctx context.Context, db *pgxpool.Pool) (Cost, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := readState(ctx, db, "", j.Rows)
	if err != nil {
		return Cost{}, fmt.Errorf("read what the database has: %w", err)
	}
	return costOf(j.history, stored), nil
}

func costOf(h history, s state) (cost Cost) {
	kept := map[string]bool{}
	for _, record := range s.records {
		kept[record.resource+"/"+record.key] = true
	}
	for _, w := range h.writes {
		if w.outcome == acknowledged {
			cost.Acknowledged++
			if !kept[w.resource+"/"+w.key] {
				cost.Lost++
			}
		}
	}
	for _, l := range split(h, s) {
		var tokens, zombies findings
		l.tokensRise(&tokens)
		l.olderTokensAreShutOut(&zombies)
		cost.Tokens += len(tokens)
		cost.Admitted += len(zombies)
	}
	return cost
}
