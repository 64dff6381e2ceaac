package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
)

// Limits of keys.
const (
	KeysMax          = 10_000 // that have not ended
	KeyGrantsMax     = 100
	KeyLifetimeMin   = time.Second
	KeyLifetimeMax   = 10 * 365 * 24 * time.Hour
	KeyOverlapMax    = 30 * 24 * time.Hour
	PrincipalMax     = 200 // bytes of a principal's name
	descriptionMax   = 1000
	keyIDDescription = "the id of a key has 10 letters and digits"
)

// KeysChannel is where changes of keys are notified.
const KeysChannel = "fence_keys"

// Key is an API key as administrators may see it: nobody can be found out from it.
type Key struct {
	ID          string
	Principal   string
	Description string
	Grants      []access.Grant
	CreatedAt   time.Time
	CreatedBy   string // the principal that made it
	// ExpiresAt is zero for a key without an end, RevokedAt for one that was not revoked, and LastUsedAt for one that was
	// not used.
	ExpiresAt, RevokedAt, LastUsedAt time.Time
}

// KeyRequest asks for a key.
type KeyRequest struct {
	ID     string // of the new key; see apikey.New
	Digest apikey.Digest
	// Lifetime is the time from now to its end, KeyLifetimeMin to KeyLifetimeMax. 0: it has none; for a rotation: as long
	// as the lifetime of the old key was.
	Lifetime  time.Duration
	CreatedBy string

	Principal   string         // not for a rotation, like the following
	Description string         // any text
	Grants      []access.Grant // 1 to KeyGrantsMax
}

// Check returns ErrInvalid or ErrInvalidName, naming the field, if the request for a new key is outside its limits.
func (r KeyRequest) Check() error { return cmp.Or(r.checkLifetime(), r.checkHolder()) }

// CheckRotation is Check for a key that replaces the one with an ID, which lasts for the overlap.
func (r KeyRequest) CheckRotation(id string, overlap time.Duration) error {
	if overlap < 0 || overlap > KeyOverlapMax {
		return fmt.Errorf("%w: the overlap is %s, it must be 0 to %s", ErrInvalid, overlap, KeyOverlapMax)
	}
	return cmp.Or(CheckKeyID(id), r.checkLifetime())
}

func (r KeyRequest) checkLifetime() error {
	if r.Lifetime != 0 && (r.Lifetime < KeyLifetimeMin || r.Lifetime > KeyLifetimeMax) {
		return fmt.Errorf("%w: the lifetime of a key is %s, it must be %s to %s",
			ErrInvalid, r.Lifetime, KeyLifetimeMin, KeyLifetimeMax)
	}
	return nil
}

func (r KeyRequest) checkHolder() error {
	if access.IsReserved(r.Principal) {
		return fmt.Errorf("%w: principal is %.100q, which no key may have: %q is for callers without a credential, and "+
			"names that begin with %q are for roles of the database", ErrInvalid, r.Principal, access.Anyone.Name, access.SQLPrefix)
	}
	if len(r.Grants) < 1 || len(r.Grants) > KeyGrantsMax {
		return fmt.Errorf("%w: a key has %d grants, it must have 1 to %d", ErrInvalid, len(r.Grants), KeyGrantsMax)
	}
	for _, grant := range r.Grants {
		if grant.Prefix == access.AllNames {
			continue
		}
		if _, err := ParseName(grant.Prefix); err != nil {
			return fmt.Errorf("grants: %w", err)
		}
	}
	return cmp.Or(checkText("principal", r.Principal, 1, PrincipalMax), checkSeen("principal", r.Principal),
		checkText("description", r.Description, 0, descriptionMax), checkSeen("description", r.Description))
}

const (
	keyNotThere = "there is no live key %s"
	noSuchKey   = "there is no key %s"
)

const keyColumns = `k.id, k.principal, k.description, k.grants, k.created_at, k.created_by, k.expires_at, k.revoked_at,
	k.last_used_at`

func readKey(row pgx.CollectableRow) (key Key, err error) {
	var id pgtype.Text
	var principal, description, by pgtype.Text
	var grants []string
	var created, expires, revoked, used pgtype.Timestamptz
	err = row.Scan(&id, &principal, &description, &grants, &created, &by, &expires, &revoked, &used)
	if err != nil || !id.Valid {
		return Key{}, err
	}
	key = Key{
		ID: id.String, Principal: principal.String, Description: description.String, CreatedAt: created.Time,
		CreatedBy: by.String, ExpiresAt: expires.Time, RevokedAt: revoked.Time, LastUsedAt: used.Time,
	}
	key.Grants, err = access.ParseAll(grants)
	return key, err
}

// keyStatement has connections of its own, so that no lists that are slow, or too many, delay the end of a key.
var keyStatement = statement{purpose: forRenewals}

func (s *Store) changeKeys(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	return s.queryAs(ctx, keyStatement, sql, args, scan)
}

// changeKey calls a function that returns a key. It returns ErrNotFound with the message if that is null.
func (s *Store) changeKey(ctx context.Context, missing, id, sql string, args ...any) (Key, error) {
	keys, err := collect(ctx, s.changeKeys, "select "+keyColumns+" from "+sql+" k", args, readKey)
	switch {
	case isState(err, "54000"):
		return Key{}, fmt.Errorf("%w: there are %d live keys already, the limit: revoke the unused ones", ErrInvalid, KeysMax)
	case err != nil:
		return Key{}, err
	case keys[0].ID == "":
		return Key{}, fmt.Errorf("%w: "+missing, ErrNotFound, id)
	}
	return keys[0], nil
}

// CreateKey makes an API key. It returns ErrInvalid, ErrInvalidName or ErrUnavailable.
func (s *Store) CreateKey(ctx context.Context, request KeyRequest) (Key, error) {
	if err := request.Check(); err != nil {
		return Key{}, err
	}
	return s.changeKey(ctx, noSuchKey, request.ID, "fence.create_key($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		request.ID, request.Digest[:], request.Principal, request.Description,
		access.Texts(access.Minimal(request.Grants)), request.CreatedBy, orNull(request.Lifetime.Milliseconds()), KeysMax,
		orNull(ActorOf(ctx).Address))
}

// RotateKey makes a key with the principal, description and grants of another one, which expires after the overlap. It
// returns ErrNotFound if that one is not live, ErrInvalid or ErrUnavailable.
func (s *Store) RotateKey(ctx context.Context, id string, request KeyRequest, overlap time.Duration) (Key, error) {
	if err := request.CheckRotation(id, overlap); err != nil {
		return Key{}, err
	}
	return s.changeKey(ctx, keyNotThere, id, "fence.rotate_key($1, $2, $3, $4, $5, $6, $7, $8)",
		id, request.ID, request.Digest[:], request.CreatedBy, orNull(request.Lifetime.Milliseconds()),
		overlap.Milliseconds(), KeysMax, orNull(ActorOf(ctx).Address))
}

// RevokeKey ends a key at once. It succeeds again for a key that was revoked. It returns ErrNotFound, ErrInvalid or
// ErrUnavailable.
func (s *Store) RevokeKey(ctx context.Context, id string) (Key, error) {
	if err := CheckKeyID(id); err != nil {
		return Key{}, err
	}
	return s.changeKey(ctx, noSuchKey, id, "fence.revoke_key($1, "+actorSQL(2)+")", actorArgs(ctx, id)...)
}

// CheckKeyID returns ErrInvalid for a text that is no ID of a key.
func CheckKeyID(id string) error {
	if !apikey.IsID(id) {
		return fmt.Errorf("%w: %s", ErrInvalid, keyIDDescription)
	}
	return nil
}

// KeyQuery selects keys, the newest first. AfterMicros and AfterID are of the last key that was seen: when it was
// created, in microseconds since 1970, and its ID. Zero: none was.
type KeyQuery struct {
	AfterMicros int64
	AfterID     string
	Limit       int // 1 to PageMax
}

// Check returns ErrInvalid if the query is outside its limits.
func (q KeyQuery) Check() error { return checkLimit(q.Limit) }

// Keys returns keys, also those that have ended and are not forgotten yet. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Keys(ctx context.Context, query KeyQuery) ([]Key, error) {
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

// LiveKey is a key as a gateway needs it to recognise its holder.
type LiveKey struct {
	ID        string
	Digest    apikey.Digest
	Principal string
	Grants    []access.Grant
	ExpiresAt time.Time // zero: never
}

// LiveKeys are all keys that were neither revoked nor expired at a time of the database.
type LiveKeys struct {
	Changes int64 // how often the keys were changed until then
	At      time.Time
	Keys    []LiveKey
	// Unreadable says which keys are left out, since this version can't read their grants; nil: none.
	Unreadable error
}

// LiveKeys returns the live keys, or nil if nothing has changed since the count of changes that is known; -1: none is.
// It returns ErrUnavailable.
func (s *Store) LiveKeys(ctx context.Context, known int64) (*LiveKeys, error) {
	var live *LiveKeys
	err := s.queryAs(ctx, keyStatement, "select * from fence.live_keys($1)", []any{known}, func(rows pgx.Rows) error {
		if live == nil {
			live = &LiveKeys{}
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
		live.Keys = append(live.Keys, LiveKey{id.String, apikey.Digest(digest), principal.String, grants, expires.Time})
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
