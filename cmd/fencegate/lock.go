package main

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// lockCmds are the commands below "fencegate lock".
type lockCmds struct {
	Acquire acquireCmd `cmd:"" help:"Acquire a lease, and print its fencing token."`
	Renew   renewCmd   `cmd:"" help:"Extend a lease by its TTL from now."`
	Release releaseCmd `cmd:"" help:"End a lease, and reject later writes under it."`
	Break   breakCmd   `cmd:"" help:"End the live leases of a lock, and reject their writes."`
	Get     lockGetCmd `cmd:"" help:"Show a lock: its holders, its queue and its fence."`
	Ls      lockLsCmd  `cmd:"" aliases:"list" help:"List locks by name."`
}

func leaseFields(lease api.Lease) []field {
	fields := []field{
		{"lock", lease.Lock},
		{"owner_id", lease.OwnerID},
		{"fencing_token", strconv.FormatInt(lease.FencingToken, 10)},
		{"lease_id", lease.LeaseID},
		{"ttl", (time.Duration(lease.TTLMS) * time.Millisecond).String()},
		{"granted_at", clock(lease.GrantedAt)},
		{"expires_at", clock(lease.ExpiresAt)},
	}
	if lease.HoldUntil != nil {
		fields = append(fields, field{"hold_until", clock(*lease.HoldUntil)})
	}
	return append(fields, optionalFields(lease.Mode, lease.Scope, lease.SessionID, lease.Metadata)...)
}

// optionalFields are those of a lease that are not the default.
func optionalFields(mode, scope, sessionID string, metadata json.RawMessage) (fields []field) {
	if mode != "exclusive" {
		fields = append(fields, field{"mode", mode})
	}
	if scope != "node" {
		fields = append(fields, field{"scope", scope})
	}
	if sessionID != "" {
		fields = append(fields, field{"session_id", sessionID})
	}
	if metadata != nil {
		fields = append(fields, field{"metadata", string(metadata)})
	}
	return fields
}

// clock writes a time of the database's clock.
func clock(t api.Time) string {
	text, _ := t.MarshalText()
	return string(text)
}
