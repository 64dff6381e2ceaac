package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
)

// The calls and the rows of TestWaysOfLeasesAgree.

// decideAcquires sends requests to the function of a way, and returns what was granted, by name. The rows that the
// function returns must be those of the table.
func (w *waysRun) decideAcquires(
	ctx context.Context, way leaseWay, requests []waysRequest,
) (map[string]store.LeaseRef, error) {
	granted := map[string]store.LeaseRef{}
	if way.acquire == "" {
		return granted, nil
	}
	sql := "select l.lock, l.owner_id, l.lease_id, l.fencing_token, to_jsonb(l)::text from " + way.acquire + " l"
	var rows []string
	for set := range slices.Chunk(requests, way.size(len(requests))) {
		var locks, owners, principals, modes []string
		var ttls []int
		var requestIDs, metadata []*string
		for _, r := range set {
			locks, owners = append(locks, w.name(way, r.name)), append(owners, r.owner)
			principals, modes, ttls = append(principals, r.principal), append(modes, r.mode), append(ttls, r.ttl)
			requestIDs, metadata = append(requestIDs, r.requestID), append(metadata, r.metadata)
		}
		var ref store.LeaseRef
		var row string
		err := w.each(ctx, sql, []any{locks, owners, principals, modes, ttls, requestIDs, metadata},
			[]any{&ref.Lock, &ref.OwnerID, &ref.ID, &ref.Token, &row}, func() {
				w.decided[way.acquire]++
				granted[strings.TrimPrefix(string(ref.Lock), w.name(way, ""))] = ref
				rows = append(rows, row)
			})
		if err != nil {
			return nil, err
		}
	}
	return granted, w.areRows(ctx, rows)
}

// each executes a statement and calls read after each row.
func (w *waysRun) each(ctx context.Context, sql string, args, dest []any, read func()) error {
	rows, err := w.bed.SQL.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		read()
	}
	return rows.Err()
}

// areRows checks that leases that were returned are rows of the table.
func (w *waysRun) areRows(ctx context.Context, leases []string) error {
	for _, lease := range leases {
		var is bool
		const sql = "select exists (select from fence.leases l where l.lock = $1::jsonb->>'lock' and to_jsonb(l) = $1::jsonb)"
		if err := w.bed.SQL.QueryRow(ctx, sql, lease).Scan(&is); err != nil || !is {
			return fmt.Errorf("the lease %s was returned, and it is a row: %v (%w)", lease, is, err)
		}
	}
	return nil
}

// size is how many requests of a step are in one call.
func (way leaseWay) size(requests int) int {
	if way.together {
		return requests
	}
	return 1
}

// grantedLease is a lease in the answer of a function, or null.
type grantedLease struct {
	lock, owner pgtype.Text
	id          pgtype.UUID
	token       pgtype.Int8
}

// grantedColumns are its columns in a row a.
const grantedColumns = "(a.lease).lock, (a.lease).owner_id, (a.lease).lease_id, (a.lease).fencing_token"

func (l *grantedLease) dest() []any { return []any{&l.lock, &l.owner, &l.id, &l.token} }

func (l *grantedLease) ref() store.LeaseRef {
	return store.LeaseRef{Lock: store.Name(l.lock.String), OwnerID: l.owner.String, ID: l.id.Bytes, Token: l.token.Int64}
}

// acquireFully sends a request to the function that decides everything. The lease has no token if it was not granted.
func (w *waysRun) acquireFully(
	ctx context.Context, way leaseWay, r waysRequest,
) (answer string, ref store.LeaseRef, err error) {
	const sql = "select a.outcome, coalesce((a.lease).end_reason, ''), " + grantedColumns + " from fence.acquire_lease(" +
		"fence.lease_request($1, $2, $3, $4, $5, $6, $7, $8, $9), $10, $11) a"
	var outcome, reason string
	var lease grantedLease
	err = w.bed.SQL.QueryRow(ctx, sql, w.name(way, r.name), r.owner, r.mode, r.scope, r.ttl, orNone(r.session), r.requestID,
		r.metadata, r.principal, r.waitMS, r.gateway).Scan(append([]any{&outcome, &reason}, lease.dest()...)...)
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "LF003" {
		return "external", ref, nil
	}
	if outcome == "granted" {
		ref = lease.ref()
	}
	return strings.TrimSpace(outcome + " " + reason), ref, err
}

func orNone(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// decideReleases sends releases to the function of a way, and returns the answers to those that it has decided.
func (w *waysRun) decideReleases(
	ctx context.Context, way leaseWay, refs []store.LeaseRef,
) (map[store.Name]string, error) {
	answers := map[store.Name]string{}
	if way.release == "" {
		return answers, nil
	}
	for set := range slices.Chunk(refs, way.size(len(refs))) {
		var locks, owners []string
		var ids []uuid.UUID
		var tokens []int64
		for _, ref := range set {
			locks, owners = append(locks, string(ref.Lock)), append(owners, ref.OwnerID)
			ids, tokens = append(ids, ref.ID), append(tokens, ref.Token)
		}
		var lock store.Name
		var answer string
		err := w.each(ctx, "select lock, concat_ws(' ', 'released', mode, round(age_ms / 3600000)) from "+way.release,
			[]any{locks, owners, ids, tokens}, []any{&lock, &answer}, func() {
				w.decided[way.release]++
				answers[lock] = answer
			})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (w *waysRun) handOverBy(
	ctx context.Context, way leaseWay, ref store.LeaseRef, gateway string,
) (answers []string, granted []store.LeaseRef, err error) {
	const (
		releasedBy = "concat_ws(' ', status, mode, round(age_ms / 3600000))"
		columns    = ", coalesce(a.outcome, ''), " + grantedColumns + " from "
	)
	var released string
	sql, args := "select "+releasedBy+columns+"fence.hand_over($1, $2, $3, $4, $5) a", append(argsOf(ref), gateway)
	if !way.handOver {
		const release = "select " + releasedBy + " from fence.release_lease($1, $2, $3, $4)"
		if err := w.bed.SQL.QueryRow(ctx, release, argsOf(ref)...).Scan(&released); err != nil {
			return nil, nil, err
		}
		sql = "select $3::text" + columns + "(select 1) one left join fence.grant_next($2, $1, 'node') a on true"
		args = []any{ref.Lock, gateway, released}
	}
	var outcome string
	var lease grantedLease
	err = w.each(ctx, sql, args, append([]any{&released, &outcome}, lease.dest()...), func() {
		answer := released + " " + outcome
		if outcome == "granted" {
			granted = append(granted, lease.ref())
			answer += " " + lease.owner.String
		}
		answers = append(answers, answer)
	})
	return answers, granted, err
}

func argsOf(ref store.LeaseRef) []any { return []any{ref.Lock, ref.OwnerID, ref.ID, ref.Token} }

// waysRows are the rows of a world whose prefix is $1. Tokens are their rank among the grants of their lock, times are
// rounded. IDs and what is true of every world are left out.
const waysRows = `
	with l as (
		select *, substr(lock, length($1) + 1) as name, row_number() over (partition by lock order by fencing_token) as rank
		from fence.leases where lock = $1 or starts_with(lock, $1 || '/')
	)
	select array_agg(line order by line) from (
		select concat_ws(' ', 'lease', name, rank, owner_id, 'of', principal, mode, scope, ttl_ms, requested_ttl_ms,
			session_id is not null, waited_ms > 0, round(extract(epoch from hold_until - granted_at) * 1000),
			case when isfinite(expires_at) then round(extract(epoch from expires_at - granted_at) / 3600) end,
			'checked', case when isfinite(check_at) then round(extract(epoch from check_at - granted_at) / 3600) end,
			'request', request_id, adopted, metadata, 'ended', ended_at is not null, ended_at >= granted_at, end_reason,
			end_note, kept) from l
		union all
		select concat_ws(' ', 'fence', substr(resource, length($1) + 1), open, last_token > granted_token,
			last_token > 0, last_sequence, last_version, admitted_in is null,
			(select count(*) from l where l.lock = f.resource and l.fencing_token <= f.granted_token))
		from fence.fences f where resource = $1 or starts_with(resource, $1 || '/')
		union all
		select concat_ws(' ', 'subtree', substr(s.name, length($1) + 1), open,
			(select count(*) from l where l.lock = s.name and l.fencing_token <= s.granted_token))
		from fence.subtrees s where s.name = $1 or starts_with(s.name, $1 || '/')
		union all
		select concat_ws(' ', 'waiter', substr(lock, length($1) + 1), row_number() over (partition by lock order by ticket),
			gateway_id, owner_id, 'of', principal, mode, scope, ttl_ms, 'request', request_id, metadata)
		from fence.waiters where lock = $1 or starts_with(lock, $1 || '/')
		union all
		select concat_ws(' ', 'unused', substr(u.name, length($1) + 1)) from fence.unused u
		where u.name = $1 or starts_with(u.name, $1 || '/')
	) as rows (line)`
