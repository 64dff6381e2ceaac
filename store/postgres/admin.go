package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store"
)

// actorArgs appends the actor of a context to the arguments of a function, for actorSQL.
func actorArgs(ctx context.Context, of ...any) []any {
	actor := store.ActorOf(ctx)
	return append(of, orNull(actor.Principal), orNull(actor.Address), actor.Scoped)
}

// actorSQL returns the last two arguments of a function: the actor's principal and address, in the parameter first and
// the next one.
func actorSQL(first int) string {
	return fmt.Sprintf("fence.check_actor($%d, $%d), $%d", first, first+2, first+1)
}

const (
	keyNotThere = "there is no live key %s"
	noSuchKey   = "there is no key %s"
)

const keyColumns = `k.id, k.principal, k.description, k.grants, k.created_at, k.created_by, k.expires_at, k.revoked_at,
	k.last_used_at`

func readKey(row pgx.CollectableRow) (key store.Key, err error) {
	var id pgtype.Text
	var principal, description, by pgtype.Text
	var grants []string
	var created, expires, revoked, used pgtype.Timestamptz
	err = row.Scan(&id, &principal, &description, &grants, &created, &by, &expires, &revoked, &used)
	if err != nil || !id.Valid {
		return store.Key{}, err
	}
	key = store.Key{
		ID: id.String, Principal: principal.String, Description: description.String, CreatedAt: created.Time,
		CreatedBy: by.String, ExpiresAt: expires.Time, RevokedAt: revoked.Time, LastUsedAt: used.Time,
	}
	key.Grants, err = access.ParseAll(grants)
	return key, err
}

// keyStatement has connections of its own: slow lists, or too many, do not delay the end of a key.
var keyStatement = statement{purpose: forRenewals}

// changeKey calls a function that returns a key. It returns ErrNotFound with the message if that is null.
func (s *Store) changeKey(ctx context.Context, missing, id, sql string, args ...any) (store.Key, error) {
	var key store.Key
	stmt := keyStatement
	stmt.restart = func() {} // the one row is read again
	err := s.queryAs(ctx, stmt, "select "+keyColumns+" from "+sql+" k", args, func(rows pgx.Rows) (err error) {
		key, err = readKey(rows)
		return err
	})
	switch {
	case isState(err, "54000"):
		return store.Key{}, fmt.Errorf("%w: there are %d live keys already, the limit: revoke the unused ones",
			store.ErrInvalid, store.KeysMax)
	case err != nil:
		return store.Key{}, err
	case key.ID == "":
		return store.Key{}, fmt.Errorf("%w: "+missing, store.ErrNotFound, id)
	}
	return key, nil
}

// CreateKey makes an API key. It returns ErrInvalid, ErrInvalidName or ErrUnavailable.
func (s *Store) CreateKey(ctx context.Context, request store.KeyRequest) (store.Key, error) {
	if err := request.Check(); err != nil {
		return store.Key{}, err
	}
	return s.changeKey(ctx, noSuchKey, request.ID, "fence.create_key($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		request.ID, request.Digest[:], request.Principal, request.Description,
		access.Texts(access.Minimal(request.Grants)), request.CreatedBy, orNull(request.Lifetime.Milliseconds()), store.KeysMax,
		orNull(store.ActorOf(ctx).Address))
}

// RotateKey makes a key with the principal, description and grants of another one, which expires after the overlap. It
// returns ErrNotFound if that one is not live, ErrInvalid or ErrUnavailable.
func (s *Store) RotateKey(
	ctx context.Context, id string, request store.KeyRequest, overlap time.Duration,
) (store.Key, error) {
	if err := request.CheckRotation(id, overlap); err != nil {
		return store.Key{}, err
	}
	return s.changeKey(ctx, keyNotThere, id, "fence.rotate_key($1, $2, $3, $4, $5, $6, $7, $8)",
		id, request.ID, request.Digest[:], request.CreatedBy, orNull(request.Lifetime.Milliseconds()),
		overlap.Milliseconds(), store.KeysMax, orNull(store.ActorOf(ctx).Address))
}

// RevokeKey ends a key at once. It succeeds again for a key that was revoked. It returns ErrNotFound, ErrInvalid or
// ErrUnavailable.
func (s *Store) RevokeKey(ctx context.Context, id string) (store.Key, error) {
	if err := store.CheckKeyID(id); err != nil {
		return store.Key{}, err
	}
	return s.changeKey(ctx, noSuchKey, id, "fence.revoke_key($1, "+actorSQL(2)+")", actorArgs(ctx, id)...)
}

// Keys returns keys, also those that have ended and are not forgotten yet. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Keys(ctx context.Context, query store.KeyQuery) ([]store.Key, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	const sql = "select " + keyColumns + ` from fence.keys k
		where k.created_at <= $1 and (k.created_at < $1 or k.id > $2) order by k.created_at desc, k.id limit $3`
	if query.AfterMicros == 0 {
		query.AfterMicros = math.MaxInt64
	}
	return collect(ctx, s.query, sql, []any{timeAt(query.AfterMicros), query.AfterID, query.Limit}, readKey)
}

// LiveKeys returns the live keys, or nil if the count of changes is still the known one; -1: none is known. It returns
// ErrUnavailable.
func (s *Store) LiveKeys(ctx context.Context, known int64) (*store.LiveKeys, error) {
	var live *store.LiveKeys
	err := s.queryAs(ctx, keyStatement, "select * from fence.live_keys($1)", []any{known}, func(rows pgx.Rows) error {
		if live == nil {
			live = &store.LiveKeys{}
		}
		var id, principal pgtype.Text
		var digest []byte
		var texts []string
		var expires pgtype.Timestamptz
		if err := rows.Scan(&live.Changes, &live.At, &id, &digest, &principal, &texts, &expires); err != nil || !id.Valid {
			return err
		}
		grants, err := access.ParseAll(texts)
		if err != nil { // a newer version's
			live.Unreadable = errors.Join(live.Unreadable, fmt.Errorf("the grants of key %s: %w", id.String, err))
			return nil
		}
		live.Keys = append(live.Keys, store.LiveKey{
			ID: id.String, Digest: apikey.Digest(digest), Principal: principal.String, Grants: grants, ExpiresAt: expires.Time,
		})
		return nil
	})
	return live, err
}

// NoteKeyUses notes when keys were last used: how long ago. It returns ErrUnavailable.
func (s *Store) NoteKeyUses(ctx context.Context, ages map[string]time.Duration) error {
	ids, ms := make([]string, 0, len(ages)), make([]int64, 0, len(ages))
	for id, age := range ages {
		ids, ms = append(ids, id), append(ms, age.Milliseconds())
	}
	return s.exec(ctx, statement{}, "select fence.note_key_uses($1, $2)", ids, ms)
}

var auditSQL = `
	select a.id, a.at, a.principal, a.address, a.action, a.name, a.details from fence.audit a
	where ($1 = '' or a.action = $1) and ($2 = '' or a.principal = $2) and ($3 = '' or a.name = $3)
		and starts_with(a.name, $4) and a.at >= $5 and ($6::timestamptz is null or a.at < $6)
		and ($7 = 0 or a.id < $7) and ` + withinSQL("a.name", "$8") + `
	order by a.id desc limit $9`

// Audit returns entries of the audit log. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Audit(ctx context.Context, query store.AuditQuery) ([]store.AuditEntry, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	return collect(ctx, s.query, auditSQL, []any{
		query.Action, query.Principal, query.Name, query.Prefix, query.Since, orNull(query.Until), query.Before,
		query.Within, query.Limit,
	}, pgx.RowToStructByPos[store.AuditEntry])
}

// auditSealsSQL reads seals with their entries. Where it reads the last seal, it also reads entries of seals that do not
// exist.
const auditSealsSQL = `
	with page as (select * from fence.audit_seals s where s.seal > $1 order by s.seal limit $2),
		numbers as (
			(select p.seal from page p union select a.seal from fence.audit a
			where a.seal > $1 and a.seal <= (
				select case when count(*) < $2 then 9223372036854775807 else max(p.seal) end from page p))
			order by 1 limit $2)
	select n.seal, coalesce((extract(epoch from p.at) * 1000000)::bigint, 0), coalesce(p.previous, ''),
		coalesce(p.hash, ''), coalesce(p.entries, ''), e.ids, e.texts
	from numbers n left join page p using (seal) cross join lateral (
		select coalesce(array_agg(a.id), '{}') as ids, coalesce(array_agg(fence.audit_text(a)), '{}') as texts
		from (select * from fence.audit a where a.seal = n.seal order by a.id limit 1000) a) e
	order by n.seal`

// AuditSeals returns the first seals of the audit log after one, store.AuditSealsMax at most, with their entries, and how many
// entries are not sealed yet, up to a thousand. It returns ErrUnavailable.
func (s *Store) AuditSeals(ctx context.Context, after int64) (seals []store.AuditSeal, unsealed int64, err error) {
	seals, err = collect(ctx, s.query, auditSealsSQL, []any{after, store.AuditSealsMax}, readSeal)
	if err == nil {
		err = s.queryRow(ctx, statement{},
			"select count(*) from (select from fence.audit where seal is null limit 1000) u", nil, &unsealed)
	}
	return seals, unsealed, err
}

// readSeal reads a row of auditSealsSQL.
func readSeal(row pgx.CollectableRow) (store.AuditSeal, error) {
	var seal store.AuditSeal
	var entries string
	var ids []int64
	var texts []string
	if err := row.Scan(&seal.Seal, &seal.AtUS, &seal.Previous, &seal.Hash, &entries, &ids, &texts); err != nil {
		return seal, err
	}
	found := make(map[int64]string, len(ids))
	for i, id := range ids {
		found[id] = texts[i]
	}
	for line := range strings.Lines(entries) {
		var entry store.SealedEntry
		fields := strings.Fields(line)
		if len(fields) == 3 { // of a line that was changed, the hash of the seal does not fit
			entry.ID, _ = strconv.ParseInt(fields[0], 10, 64)
			entry.AtUS, _ = strconv.ParseInt(fields[1], 10, 64)
			entry.Hash = fields[2]
		}
		entry.Text = found[entry.ID]
		delete(found, entry.ID)
		seal.Entries = append(seal.Entries, entry)
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		seal.Entries = append(seal.Entries, store.SealedEntry{ID: id, Text: found[id]})
	}
	return seal, nil
}

// AuditHead returns the last seal of the audit log and its hash; 0: there is none. It returns ErrUnavailable.
func (s *Store) AuditHead(ctx context.Context) (seal int64, hash string, err error) {
	err = s.query(ctx, "select s.seal, s.hash from fence.audit_seals s order by s.seal desc limit 1", nil,
		func(rows pgx.Rows) error { return rows.Scan(&seal, &hash) })
	return seal, hash, err
}

// NoteRefusals adds entries to the audit log. It returns ErrUnavailable.
func (s *Store) NoteRefusals(ctx context.Context, refusals []store.Refusal) error {
	return s.exec(ctx, statement{}, "select fence.note_refusals($1)", refusals)
}

// tablesSQL reads the fields of a ProtectedTable. It waits for no lock on a table: it reads only the catalog. A guard
// names no table, so its rejections count for each table whose template fits the resource: a % stands for the value of a
// column, which has no slash.
const tablesSQL = `
	with guards as materialized (
		select r.resource, length(r.resource) - length(replace(r.resource, '/', '')) as slashes, r.count
		from fence.rejections r
		where r.source = 'sql' and r.key = '' and r.changed_at > clock_timestamp() - interval '24 hours'
		order by r.changed_at desc limit 10000
	)
	select t.id, t.name, t.template, t.mode, t.inserts, t.protected_at,
		coalesce(t.problem, ''), nullif(t.checked_at, '-infinity'), (
			select sum(c.reltuples)::bigint
			from fence.with_partitions(t.table_id) as p (relid) join pg_class c on c.oid = p.relid
			where c.relkind <> 'p' and c.reltuples >= 0),
		(select coalesce(sum(r.count), 0) from fence.rejections r
		where r.source = 'sql' and r.key = t.name and r.changed_at > clock_timestamp() - interval '24 hours')::bigint
		+ (select coalesce(sum(g.count), 0) from guards g
		where g.slashes = t.slashes and g.resource like t.pattern)::bigint
	from (
		select *, length(template) - length(replace(template, '/', '')) as slashes,
			regexp_replace(regexp_replace(template, '([\\%_])', '\\\1', 'g'), '[{][^{}]+[}]', '%', 'g') as pattern
		from (
			select p.id, p.table_id, p.template, p.mode, p.inserts, p.protected_at, p.problem, p.checked_at,
				case when c.oid is null then p.table_id::oid::text else format('%s.%s', n.nspname, c.relname) end
					collate "C" as name
			from fence.protected_tables p
			left join pg_class c on c.oid = p.table_id left join pg_namespace n on n.oid = c.relnamespace
		) named
		where starts_with(name, $1) and (name, id) > ($2, $3)
		order by name, id
		limit $4
	) t
	order by t.name, t.id`

// SQLRoles returns the first 1,000 roles with the rights of an application, by name. It returns ErrUnavailable.
func (s *Store) SQLRoles(ctx context.Context) ([]store.SQLRole, error) {
	roles, err := collect(ctx, s.query, `select r.role_name::text, r.prefixes from fence.sql_roles r
		order by r.role_name collate "C" limit 1000`, nil, pgx.RowToStructByPos[store.SQLRole])
	if err != nil {
		return nil, fmt.Errorf("list the roles of applications: %w", err)
	}
	return roles, nil
}

// Tables returns protected tables. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Tables(ctx context.Context, query store.TableQuery) ([]store.ProtectedTable, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	args := []any{query.Prefix, query.AfterName, query.AfterID, query.Limit}
	tables, err := collect(ctx, s.query, tablesSQL, args, pgx.RowToStructByPos[store.ProtectedTable])
	if err != nil {
		return nil, fmt.Errorf("list the protected tables: %w", err)
	}
	return tables, nil
}
