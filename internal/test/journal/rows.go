package journal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// rows is what the database has of some names at one moment.
type rows struct {
	leases  []lease // by token
	records map[[2]store.Name]record
	fences  map[store.Name]fence
}

type lease struct {
	Lock      store.Name
	Owner     string
	ID        uuid.UUID
	Token     int64
	Mode      store.Mode
	Scope     store.Scope
	GrantedAt time.Time
	EndsAt    time.Time
}

func (l lease) String() string {
	const clock = "15:04:05.000000"
	return fmt.Sprintf("token %d of %s (%s, %s on %s, lease %s, from %s to %s)", l.Token, l.Owner, l.Mode, l.Scope, l.Lock,
		l.ID, l.GrantedAt.Format(clock), l.EndsAt.Format(clock))
}

type record struct {
	Resource, Key            store.Name
	Version, Token, Sequence int64
	Value                    string
	UpdatedAt                time.Time
}

type fence struct {
	Resource                                             store.Name
	GrantedToken, LastToken, LastSequence, NewestVersion int64
}

// readRows reads the rows of the names with a prefix. A row of a protected table is a record whose version is its place in
// the order of numbers.
func readRows(ctx context.Context, db *pgxpool.Pool, prefix, ofTables string) (rows, error) {
	r := rows{records: map[[2]store.Name]record{}, fences: map[store.Name]fence{}}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
		if r.leases, err = collect[lease](ctx, tx, `select lock, owner_id, lease_id, fencing_token, mode, scope, granted_at,
				coalesce(ended_at, l.expires_at) from fence.leases l where starts_with(lock, $1) order by fencing_token`, prefix); err != nil {
			return err
		}
		fences, err := collect[fence](ctx, tx, `select resource, granted_token, last_token, last_sequence, last_version
			from fence.fences where starts_with(resource, $1)`, prefix)
		if err != nil {
			return err
		}
		for _, f := range fences {
			r.fences[f.Resource] = f
		}
		records, err := collect[record](ctx, tx, `select resource, key, version, fencing_token, coalesce(sequence, 0),
			convert_from(value, 'UTF8'), updated_at from fence.records where starts_with(resource, $1)`, prefix)
		if err == nil && ofTables != "" {
			var more []record
			more, err = collect[record](ctx, tx, `select resource, key,
				row_number() over (partition by resource order by token, sequence), token, sequence, value, at
				from (`+ofTables+`) t`, prefix)
			for _, row := range more {
				f := r.fences[row.Resource]
				f.NewestVersion++
				r.fences[row.Resource] = f
			}
			records = append(records, more...)
		}
		for _, one := range records {
			r.records[[2]store.Name{one.Resource, one.Key}] = one
		}
		return err
	})
	return r, err
}

func collect[T any](ctx context.Context, tx pgx.Tx, sql, prefix string) ([]T, error) {
	found, err := tx.Query(ctx, sql, prefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByPos[T])
}

// recordsOf are the puts of an operation.
func recordsOf(op spec.Op) []spec.Op {
	return slices.DeleteFunc(append(slices.Clone(op.Parts), op), func(part spec.Op) bool {
		return part.Kind != spec.Put && part.Kind != spec.Guard
	})
}

// tokenOf is the token and sequence under which an operation writes, to one resource.
func tokenOf(op spec.Op) (token, sequence int64) {
	for _, part := range append(op.Parts, op) {
		if part.Sequence != nil {
			return part.Token, *part.Sequence
		}
	}
	return 0, 0
}

func (r rows) stored(put spec.Op) record { return r.records[[2]store.Name{put.Name, put.Key}] }

// readings are the records as the calls of a client that read each that was written to.
func (r rows) readings(calls []spec.Call, now int64) (readings []spec.Call) {
	read := map[[2]store.Name]record{}
	for _, call := range calls {
		for _, put := range recordsOf(call.Op) {
			read[[2]store.Name{put.Name, put.Key}] = r.stored(put)
		}
	}
	maps.Copy(read, r.records)
	for at, found := range read {
		now++
		call := spec.Call{Client: -1, Sent: now, Answered: now, Op: spec.Op{Kind: spec.ReadRecord, Name: at[0], Key: at[1]},
			Answer: spec.Answer{Code: spec.CodeNotFound}}
		if found.Version > 0 {
			call.Answer = spec.Answer{Code: spec.CodeRecord, Version: found.Version, Record: spec.Record{Version: found.Version,
				Token: found.Token, Sequence: found.Sequence, Numbered: true, Value: found.Value}}
		}
		readings = append(readings, call)
	}
	return readings
}

// judge holds answers against rows, but for those that a loss took back.
type judge struct {
	rows
	granted map[int64][]lease    // by token: databases of a cluster grant the same ones, for different names
	sent    map[string]spec.Call // by value: each write has one
	mayBe   map[string]bool      // the values that an attempt may have stored
	losses  []spec.Call
	found   []string
}

func compare(calls []spec.Call, r rows) []string {
	j := &judge{rows: r, granted: map[int64][]lease{}, sent: map[string]spec.Call{}, mayBe: map[string]bool{}}
	for i, l := range r.leases {
		j.granted[l.Token] = append(j.granted[l.Token], l)
		for _, before := range r.leases[:i] {
			meet := before.covers(l.Lock) || l.covers(before.Lock)
			if meet && (l.Mode == store.Exclusive || before.Mode == store.Exclusive) && l.GrantedAt.Before(before.EndsAt) {
				j.violated("P1", l.Lock, "leases overlap, or tokens fall (P2): %s and %s", before, l)
			}
		}
	}
	for _, call := range calls {
		if call.Op.Kind == spec.Lose {
			j.losses = append(j.losses, call)
		}
		for _, put := range recordsOf(call.Op) {
			j.sent[put.Value] = call
			if call.Answer.Code == spec.CodeAdmitted || call.Answer.Code == spec.CodeUnknown {
				j.mayBe[put.Value] = true
			}
		}
	}
	for _, call := range calls {
		j.answer(call)
	}
	versions, last := map[store.Name]map[int64]bool{}, map[store.Name]record{}
	for _, stored := range r.records {
		j.record(stored)
		if versions[stored.Resource] == nil {
			versions[stored.Resource] = map[int64]bool{}
		}
		versions[stored.Resource][stored.Version] = true
		if stored.Version > last[stored.Resource].Version {
			last[stored.Resource] = stored
		}
	}
	for name, f := range r.fences {
		count, of := len(versions[name]), last[name]
		if int64(count) != f.NewestVersion || of.Version != f.NewestVersion {
			j.violated("P10", name, "the fence counts %d writes, there are %d, the last of version %d", f.NewestVersion, count,
				of.Version)
		}
		if of.Token != f.LastToken || of.Sequence != f.LastSequence {
			j.violated("P4", name, "the last write is %d.%d, the fence says %d.%d", of.Token, of.Sequence, f.LastToken,
				f.LastSequence)
		}
	}
	return j.found
}

func (j *judge) violated(promise string, of store.Name, format string, arguments ...any) {
	j.found = append(j.found, fmt.Sprintf("%s on %s, by its rows: ", promise, of)+fmt.Sprintf(format, arguments...))
}

// lease returns the lease that a token was granted with, for the name or for a subtree with it.
func (j *judge) lease(token int64, of store.Name) (found lease) {
	for _, found = range j.granted[token] {
		if found.covers(of) {
			break
		}
	}
	return found
}

// answer looks for the lease of a grant, and for the records of an acknowledged write.
func (j *judge) answer(call spec.Call) {
	lost := slices.ContainsFunc(j.losses, func(l spec.Call) bool {
		return l.Sent <= call.Answered && call.Answered <= l.Answered
	})
	switch {
	case lost:
	case call.Answer.Code == spec.CodeGranted:
		stored := j.lease(call.Answer.Token, call.Op.Name)
		if stored.ID != call.Answer.ID || stored.Lock != call.Op.Name || stored.Owner != call.Op.Owner {
			j.violated("P9", call.Op.Name, "a grant is lost: %s, and the database has %s", call, stored)
		}
		if granted := j.fences[call.Op.Name].GrantedToken; granted < call.Answer.Token {
			j.violated("P9", call.Op.Name, "the fence knows no grant above %d: %s", granted, call)
		}
	case call.Answer.Code == spec.CodeAdmitted:
		for _, put := range recordsOf(call.Op) {
			if stored := j.stored(put); stored.Version == 0 || stored.Version < call.Answer.Version {
				j.violated("P9", put.Name, "an acknowledged write is lost: %s, and the database has %+v", call, stored)
			}
		}
	}
}

// record looks for the write of a record, and for the lease that admitted it.
func (j *judge) record(stored record) {
	name, call := stored.Resource, j.sent[stored.Value]
	token, sequence := tokenOf(call.Op)
	if token != stored.Token || sequence != stored.Sequence {
		j.violated("P5", name, "no client sent the record %+v", stored)
	} else if !j.mayBe[stored.Value] {
		j.violated("P12", name, "a refused write is there: %s", call)
	}
	for _, put := range recordsOf(call.Op) {
		if j.stored(put).Version < stored.Version {
			j.violated("P4", name, "half of a write is there: %s, and the database has %+v and %+v", call, stored, j.stored(put))
		}
	}
	if by := j.lease(stored.Token, name); !by.covers(name) || by.Mode == store.Shared {
		j.violated("P5", name, "the record %+v was admitted under %s", stored, by)
	}
	next := slices.IndexFunc(j.leases, func(l lease) bool { return l.Token > stored.Token && l.covers(name) })
	if next >= 0 && stored.UpdatedAt.After(j.leases[next].GrantedAt) {
		j.violated("P3", name, "the record %+v was stored after the grant of %s", stored, j.leases[next])
	}
}

func (l lease) covers(name store.Name) bool {
	return l.Lock == name || l.Scope == store.Subtree && strings.HasPrefix(string(name), string(l.Lock)+"/")
}
