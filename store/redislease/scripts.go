package redislease

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/store"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts. The header of each file says what it does.
var (
	lookScript    = script("look")
	reserveScript = script("reserve")
	markScript    = script("mark")
	confirmScript = script("confirm")
	renewScript   = script("renew")
	releaseScript = script("release")
	forgetScript  = script("forget")
)

// script returns a script with lease.lua before it.
func script(name string) *redis.Script {
	text := ""
	for _, file := range []string{"lease", name} {
		part, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		text += string(part) + "\n"
	}
	return redis.NewScript(text)
}

// value is what the key of a lock has, as JSON: a reservation, or with a Token a lease. Lua changes TTLMS, and adds
// HoldUntilMS. All texts are escaped, so neither can be found within another field.
type value struct {
	Format    int       `json:"fencegate"` // 1
	LeaseID   uuid.UUID `json:"lease_id"`
	OwnerID   string    `json:"owner_id"`
	Principal string    `json:"principal,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Token     int64     `json:"fencing_token,omitempty"`
	TTLMS     int64     `json:"ttl_ms"`
	AskedMS   int64     `json:"asked_ttl_ms"` // the TTL of the acquire, which renewals leave
	GrantedAt time.Time `json:"granted_at,omitzero"`
	WaitedMS  int64     `json:"waited_ms,omitempty"`
	// HoldUntil is by the database's clock, HoldUntilMS by that of the server.
	HoldUntil   time.Time `json:"hold_until,omitzero"`
	HoldUntilMS int64     `json:"hold_until_ms,omitempty"`
	// Metadata is a text, so that Lua need not parse what it contains.
	Metadata string `json:"metadata,omitempty"`
}

// newValue is the value of a reservation.
func newValue(request store.AcquireRequest, id uuid.UUID) value {
	return value{
		Format: 1, LeaseID: id, OwnerID: request.OwnerID, Principal: request.Principal, RequestID: request.RequestID,
		TTLMS: request.TTL.Milliseconds(), AskedMS: request.TTL.Milliseconds(), Metadata: string(request.Metadata),
	}
}

// granted is the value of the lease that a reservation has become.
func (v value) granted(lease store.Lease) value {
	v.Token, v.GrantedAt, v.HoldUntil, v.WaitedMS = lease.Token, lease.GrantedAt, lease.HoldUntil, lease.Waited.Milliseconds()
	return v
}

// parse returns the value of a key; nil if fencegate has not written it.
func parse(text string) *value {
	var v value
	if json.Unmarshal([]byte(text), &v) != nil || v.Format != 1 || v.OwnerID == "" {
		return nil
	}
	return &v
}

func (v value) encode() (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// lease returns the lease of a value with a token. It has left to run at a time by the server's clock, both in ms.
func (v *value) lease(lock store.Name, nowMS, leftMS int64) store.Lease {
	lease := store.Lease{
		Lock: lock, OwnerID: v.OwnerID, ID: v.LeaseID, Token: v.Token, Mode: store.Exclusive, Scope: store.Node,
		TTL: ms(v.TTLMS), GrantedAt: v.GrantedAt, ExpiresAt: time.UnixMilli(nowMS + leftMS),
		HoldUntil: v.HoldUntil, Waited: ms(v.WaitedMS), Principal: v.Principal, Provider: store.ProviderOf(v.LeaseID),
	}
	if v.Metadata != "" {
		lease.Metadata = json.RawMessage(v.Metadata)
	}
	if v.HoldUntilMS != 0 {
		lease.HoldLeft = ms(max(0, v.HoldUntilMS-nowMS))
	}
	return lease
}

// answers reports whether the value is that of the same request sent before, whose token may not be minted yet. It
// returns ErrInvalid if another owner or principal sent that, or if the request has changed since.
func (v *value) answers(request store.AcquireRequest) (bool, error) {
	switch {
	case request.RequestID == "" || v.RequestID != request.RequestID:
		return false, nil
	case v.OwnerID != request.OwnerID || v.Principal != request.Principal:
		return false, store.ErrRequestIDReused
	case v.AskedMS != request.TTL.Milliseconds() || !bytes.Equal([]byte(v.Metadata), request.Metadata):
		return false, fmt.Errorf("%w: request_id was used on this lock with another ttl_ms or metadata: "+
			"send the same request again, or take another request_id", store.ErrInvalid)
	}
	return true, nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
