package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
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

type acquireCmd struct {
	clientFlags
	Lock      string           `arg:"" help:"Name of the lock."`
	OwnerID   string           `help:"The owner." default:"${owner}"`
	TTL       millisecondsFlag `help:"How long the lease lasts unless it is renewed, ${limits}. Default: 30s." set:"limits=100ms to 24h" placeholder:"DURATION"`
	RequestID *string          `help:"An acquire that is repeated with the same id returns the same lease." placeholder:"TEXT"`
	Metadata  jsonFlag         `help:"A JSON object that others see beside the lease." placeholder:"JSON"`
	Wait      millisecondsFlag `help:"Wait in the queue for up to this long, ${limits}. Default: don't wait." set:"limits=0s to 10m" placeholder:"DURATION"`
	Shared    bool             `help:"Acquire a shared lease: it excludes exclusive leases only, and can't write."`
	Subtree   bool             `help:"Hold everything below the name, too."`
	SessionID *string          `help:"Let the lease last as long as this session; it has no TTL of its own then." placeholder:"UUID"`
}

// Help is shown by "fencegate lock acquire --help".
func (acquireCmd) Help() string {
	return "An interrupt leaves the queue. To run a command under a lock, \"fencegate run\" also renews and releases " +
		"the lease."
}

// Run acquires a lease.
func (c *acquireCmd) Run(ctx context.Context, con *console) error {
	request := api.AcquireRequest{
		OwnerID: c.OwnerID, TTLMS: c.TTL.ms, RequestID: c.RequestID, Metadata: json.RawMessage(c.Metadata),
		SessionID: c.SessionID,
	}
	flags := c.clientFlags
	if c.Wait.ms != nil {
		request.WaitMS = *c.Wait.ms
		flags.Timeout += time.Duration(request.WaitMS) * time.Millisecond
	}
	if c.Shared {
		request.Mode = "shared"
	}
	if c.Subtree {
		request.Scope = "subtree"
	}
	return answer(ctx, con, flags, leaseFields, func(ctx context.Context, gateway calls) (api.Lease, error) {
		return gateway.Acquire(ctx, c.Lock, request)
	})
}

type renewCmd struct {
	clientFlags
	leaseFlags
	Lock string           `arg:"" optional:"" help:"Name of the lock. Default: the one in FENCEGATE_LOCK."`
	TTL  millisecondsFlag `help:"A new TTL, ${limits}. Default: as it was." set:"limits=100ms to 24h" placeholder:"DURATION"`
}

// Run renews a lease.
func (c *renewCmd) Run(ctx context.Context, con *console) error {
	lock, err := resource(cmp.Or(c.Lock, "."))
	if err != nil {
		return err
	}
	request := api.RenewRequest{OwnerID: c.OwnerID, LeaseID: c.LeaseID, FencingToken: int64(c.Token), TTLMS: c.TTL.ms}
	return answer(ctx, con, c.clientFlags, leaseFields, func(ctx context.Context, gateway calls) (api.Lease, error) {
		return gateway.Renew(ctx, lock, request)
	})
}

type releaseCmd struct {
	clientFlags
	leaseFlags
	Lock string `arg:"" optional:"" help:"Name of the lock. Default: the one in FENCEGATE_LOCK."`
}

// Run releases a lease.
func (c *releaseCmd) Run(ctx context.Context, con *console) error {
	lock, err := resource(cmp.Or(c.Lock, "."))
	if err != nil {
		return err
	}
	request := api.ReleaseRequest{OwnerID: c.OwnerID, LeaseID: c.LeaseID, FencingToken: int64(c.Token)}
	fields := func(api.Released) []field {
		return []field{{"released", lock}, {"fencing_token", strconv.FormatInt(int64(c.Token), 10)}}
	}
	return answer(ctx, con, c.clientFlags, fields, func(ctx context.Context, gateway calls) (api.Released, error) {
		return api.Released{Released: true}, gateway.Release(ctx, lock, request)
	})
}

type breakCmd struct {
	clientFlags
	Lock   string `arg:"" help:"Name of the lock."`
	Reason string `help:"Why; kept with the lease." required:"" placeholder:"TEXT"`
}

// Run breaks the lease that runs on a lock.
func (c *breakCmd) Run(ctx context.Context, con *console) error {
	return answer(ctx, con, c.clientFlags, brokenFields, func(ctx context.Context, gateway calls) (api.Broken, error) {
		return gateway.Break(ctx, c.Lock, api.BreakRequest{Reason: c.Reason})
	})
}

func brokenFields(broken api.Broken) []field {
	return []field{
		{"broken", broken.Lock},
		{"owner_id", broken.OwnerID},
		{"fencing_token", strconv.FormatInt(broken.FencingToken, 10)},
	}
}

type lockGetCmd struct {
	clientFlags
	Lock string `arg:"" help:"Name of the lock. A dot: the one in FENCEGATE_LOCK."`
}

// Run shows a lock.
func (c *lockGetCmd) Run(ctx context.Context, con *console) error {
	lock, err := resource(c.Lock)
	if err != nil {
		return err
	}
	return answer(ctx, con, c.clientFlags, lockFields, func(ctx context.Context, gateway calls) (api.Lock, error) {
		return gateway.Lock(ctx, lock)
	})
}

func lockFields(lock api.Lock) []field {
	fields := []field{
		{"lock", lock.Lock},
		{"state", lock.State},
		{"fencing_token", strconv.FormatInt(lock.FencingToken, 10)},
	}
	for _, holder := range lock.Holders {
		fields = append(fields,
			field{"owner_id", holder.OwnerID},
			field{"ttl", (time.Duration(holder.TTLMS) * time.Millisecond).String()},
			field{"granted_at", clock(holder.GrantedAt)},
			field{"expires_at", clock(holder.ExpiresAt)})
		fields = append(fields, optionalFields(holder.Mode, holder.Scope, "", holder.Metadata)...)
	}
	for _, waiter := range lock.Queue {
		fields = append(fields, field{"waiting", waiter.OwnerID + " (" + waiter.Mode + ") since " + clock(waiter.QueuedAt)})
	}
	return fields
}

type lockLsCmd struct {
	listFlags
	Prefix string `help:"Only names that begin with this." placeholder:"TEXT"`
	State  string `help:"Only those that are free, held or expired; active: held or with waiters." enum:",free,held,expired,active" default:"" placeholder:"STATE"`
}

// Run lists locks.
func (c *lockLsCmd) Run(ctx context.Context, con *console) error {
	heading := []string{"LOCK", "STATE", "TOKEN", "OWNER", principalHeading, "EXPIRES"}
	return listPages(ctx, con, c.listFlags, heading, lockRow,
		func(ctx context.Context, gateway calls, cursor string, limit int) ([]api.Lock, string, error) {
			which := admin.LocksQuery{Prefix: c.Prefix, State: c.State, Limit: limit, Cursor: cursor}
			page, err := gateway.Locks(ctx, which)
			return page.Locks, page.NextCursor, err
		})
}

func lockRow(lock api.Lock) []string {
	row := []string{lock.Lock, lock.State, strconv.FormatInt(lock.FencingToken, 10), "", "", ""}
	if len(lock.Holders) > 0 {
		first := lock.Holders[0]
		row[3], row[4], row[5] = first.OwnerID, first.Principal, clock(first.ExpiresAt)
	}
	if others := len(lock.Holders) - 1; others > 0 {
		row[3] += fmt.Sprintf(" and %d more", others)
	}
	return row
}
