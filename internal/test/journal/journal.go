// Package journal checks the calls of a load while gateways and databases broke. Tests that break something use it.
//
// Journal records the calls. When the load has ended and every fault is healed, Journal.Check reads what the database
// has, and two judges look at it: spec.Check, which is given the records as readings at the end; and compare, which holds
// calls against leases, records and fences, by the database's own times, and shares no rule with the specification.
//
// A client writes each record under a key of its own, so that none can hide another: a resource's versions then are 1, 2,
// 3, … with one record each, and a write that was lost or applied twice leaves a hole. A row of a protected table is one
// write, as a record is.
package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Journal is the calls of a load, and what no call shows. It is the load's Observer, and safe for concurrent use.
type Journal struct {
	*spec.Recorder

	// Rows is a query of the rows of protected tables that were written under names with the prefix $1: resource, key,
	// value, token, sequence and time, in the order of tokens and sequences. Each row is one write, by SQL. "" if there are
	// none.
	Rows string

	mu           sync.Mutex
	acks         map[string]int // by the kind of the values
	unexpected   []string       // what no fault explains
	unavailables int
}

// New returns an empty journal, which begins now.
func New() *Journal { return &Journal{Recorder: spec.NewRecorder(), acks: map[string]int{}} }

// Add records a call.
func (j *Journal) Add(call spec.Call) {
	j.Recorder.Add(call)
	if records := recordsOf(call.Op); call.Answer.Code == spec.CodeAdmitted && len(records) > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		kind, _, _ := strings.Cut(strings.Trim(records[0].Value, `"`), " ")
		j.acks[kind]++
	}
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

// Progress returns how many writes of these kinds were acknowledged so far, and whether all answers were expected ones.
func (j *Journal) Progress(kinds ...string) (acks int, sound bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, kind := range kinds {
		acks += j.acks[kind]
	}
	return acks, len(j.unexpected) == 0
}

// Of returns a journal of the calls of some names, such as those at one node of a cluster.
func (j *Journal) Of(some func(store.Name) bool) *Journal {
	return &Journal{Recorder: j.Recorder.Of(some), acks: map[string]int{}}
}

// Crashed notes that the database crashes, or may.
func (j *Journal) Crashed() {
	now := j.Now()
	j.Add(spec.Call{Sent: now, Answered: now, Op: spec.Op{Kind: spec.Crash}, Answer: spec.Answer{Code: spec.CodeDone}})
}

// Lost notes that what was answered since a time may be gone, by design: a standby that lacked it was promoted, or a
// backup from before was restored. What is answered from now on is answered by the new database.
func (j *Journal) Lost(from int64) {
	j.Add(spec.Call{Sent: from, Answered: j.Now(), Op: spec.Op{Kind: spec.Lose}, Answer: spec.Answer{Code: spec.CodeDone}})
}

// Summary says what the load was made of.
func (j *Journal) Summary() string {
	calls := j.Calls()
	j.mu.Lock()
	defer j.mu.Unlock()
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(j.acks)) {
		kinds = append(kinds, fmt.Sprintf("%d by %s", j.acks[kind], kind))
	}
	answers := map[string]int{}
	for _, call := range calls {
		answers[string(call.Op.Kind)+" "+call.Answer.Code]++
	}
	return fmt.Sprintf("%d calls; acknowledged writes: %s; unavailable %d times; %v", len(calls), strings.Join(kinds, ", "),
		j.unavailables, answers)
}

// Check compares what clients saw with the contract and with what the database has, and returns what contradicts them,
// and the answers that no fault explains. No client is at work any more, and the load's names begin with prefix. The
// history is kept in a file if anything is found.
func (j *Journal) Check(ctx context.Context, db *pgxpool.Pool, prefix string) (found []string, err error) {
	calls := j.Calls()
	stored, err := readRows(ctx, db, prefix, j.Rows)
	if err != nil {
		return nil, fmt.Errorf("read what the database has: %w", err)
	}
	for _, kind := range []spec.Kind{spec.Acquire, spec.Put} {
		if !slices.ContainsFunc(calls, func(call spec.Call) bool { return call.Op.Kind == kind }) {
			return nil, fmt.Errorf("there was no %s", kind)
		}
	}
	history := slices.Concat(calls, stored.readings(calls, j.Now()))
	found = slices.Clone(j.unexpected)
	for _, violation := range spec.Check(history) {
		found = append(found, violation.String())
	}
	unfit, err := checkRows(ctx, db)
	if found = slices.Concat(found, compare(calls, stored), unfit); len(found) > 0 {
		kept, failed := keep(history)
		return append(found, kept), errors.Join(err, failed)
	}
	return found, err
}

// keep writes a history to a file among the artifacts, and returns how to check it.
func keep(history []spec.Call) (how string, err error) {
	dir := os.Getenv("FENCEGATE_ARTIFACTS")
	if dir == "" {
		dir = os.TempDir()
	}
	file, err := os.CreateTemp(filepath.Clean(dir), "history-*.txt")
	if err != nil {
		return "", err
	}
	return "bin/fencegate-bench check-history " + file.Name(), errors.Join(spec.WriteCalls(file, history), file.Close())
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

// Exercise returns the load of clients that contend for locks, whose TTL is short enough for abandoned leases to expire.
// The caller adds the gateways.
func (j *Journal) Exercise(clients int, locks []string, finishWithin time.Duration) load.Exercise {
	return load.Exercise{Clients: clients, Locks: locks, Observer: j, TTL: 200 * time.Millisecond, FinishWithin: finishWithin,
		Compose: compose}
}

// The kinds of the writes of an Exercise.
const (
	ByPut         = "put"
	ByTransaction = "transaction"
)

// compose makes a put of one record; or a transaction that puts one of its own as any write does, one more, and the one
// that all transactions put.
func compose(random *rand.Rand, token spec.Op) spec.Op {
	if random.IntN(2) == 0 {
		return Compose(ByPut, token)
	}
	own := Compose(ByTransaction, token)
	record := spec.Op{Kind: spec.Put, Name: own.Name, Key: own.Key, Value: own.Value}
	other, last := record, record
	other.Key, last.Key = "other/"+own.Key, "last"
	token.Kind, token.Owner = spec.Token, ""
	return spec.Op{Kind: spec.Transact, Parts: []spec.Op{token, record, other, last}}
}

// Compose makes a write of one record or row, of a token's name, numbers and owner. The kind is a word that says how it
// comes.
func Compose(kind string, token spec.Op) spec.Op {
	token.Key = store.Name(fmt.Sprintf("w/%d.%d", token.Token, *token.Sequence))
	token.Value = fmt.Sprintf(`"%s %d.%d by %s"`, kind, token.Token, *token.Sequence, token.Owner)
	return token
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
func (j *Journal) Cost(ctx context.Context, db *pgxpool.Pool) (cost Cost, err error) {
	stored, err := readRows(ctx, db, "", j.Rows)
	if err != nil {
		return Cost{}, fmt.Errorf("read what the database has: %w", err)
	}
	calls := j.Calls()
	seen := map[string]bool{}
	for _, call := range calls {
		records := recordsOf(call.Op)
		if call.Answer.Code != spec.CodeAdmitted || seen[records[0].Value] {
			continue
		}
		seen[records[0].Value] = true
		if cost.Acknowledged++; stored.stored(records[0]).Version == 0 {
			cost.Lost++
		}
		newest := int64(0)
		token, _ := tokenOf(call.Op)
		for _, grant := range calls {
			if grant.Op.Name == records[0].Name && grant.Answered < call.Sent && grant.Answer.Code == spec.CodeGranted {
				newest = max(newest, grant.Answer.Token)
			}
		}
		if newest > token && !call.Answer.Replayed {
			cost.Admitted++
		}
	}
	for _, violation := range spec.Check(calls) {
		if violation.Promise == "P2" {
			cost.Tokens++
		}
	}
	return cost, nil
}
