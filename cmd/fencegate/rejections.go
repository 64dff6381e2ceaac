package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

type rejectionsCmd struct {
	listFlags
	Resource  string  `help:"Only writes to this resource." placeholder:"NAME"`
	Code      string  `help:"Only with this code: token_required, token_unknown, token_stale, lease_mismatch, lease_expired or version_mismatch; of the source sql also token_reused or truncate." enum:",token_required,token_unknown,token_stale,lease_mismatch,lease_expired,version_mismatch,token_reused,truncate" default:"" placeholder:"CODE"`
	Prefix    string  `help:"Only writes to resources whose names begin with this text." placeholder:"TEXT"`
	Record    string  `help:"Only writes to the record with this key; of the source sql, to this protected table." placeholder:"KEY"`
	Reason    string  `help:"Only of token_stale, for this reason: superseded, released, reused, shared or max_hold." enum:",superseded,released,reused,shared,max_hold" default:"" placeholder:"REASON"`
	Kind      string  `help:"Only of this kind: zombie, numbering (a number used before), reader (a shared lease), conflict (another version) or misuse." enum:",zombie,numbering,reader,conflict,misuse" default:"" placeholder:"KIND"`
	Source    string  `help:"Only from this source, such as http." placeholder:"SOURCE"`
	OwnerID   string  `help:"Only under leases of this owner. FENCEGATE_OWNER_ID, which \"fencegate run\" sets, does not select." placeholder:"ID" env:"-"`
	Principal string  `help:"Only writes that this principal sent." placeholder:"NAME"`
	Since     agoFlag `help:"Only those seen in the last while, such as 1h; 0: all." default:"0"`
	Until     agoFlag `help:"Only those first seen longer ago than this; 0: all." default:"0"`
	LastSeen  bool    `help:"List first what was seen last, not the newest group."`
}

// Help is shown by "fencegate rejections --help".
func (rejectionsCmd) Help() string {
	return "A line is a rejected write, or several alike, with a COUNT. TOKEN is the one presented, NEWER the one that " +
		"superseded it, LATE how long after the end of its lease the latest write came, OWNER the owner of that lease."
}

// Run shows rejections.
func (c *rejectionsCmd) Run(ctx context.Context, con *console) error {
	which := admin.RejectionsQuery{
		Resource: c.Resource, Prefix: c.Prefix, Key: c.Record, Code: api.Code(c.Code), Reason: c.Reason,
		Kind: api.RejectionKind(c.Kind), Source: c.Source, OwnerID: c.OwnerID, Principal: c.Principal, LastSeen: c.LastSeen,
		Since: c.Since.Time, Until: c.Until.Time,
	}
	heading := []string{
		"WHEN", "RESOURCE", "KEY", "CODE", "TOKEN", "NEWER", "LATE", "OWNER", principalHeading, "SOURCE", "COUNT",
	}
	return listPages(ctx, con, c.listFlags, heading, rejectionRow,
		func(ctx context.Context, gateway calls, cursor string, limit int) ([]api.Rejection, string, error) {
			which.Cursor, which.Limit = cursor, limit
			page, err := gateway.Rejections(ctx, which)
			return page.Rejections, page.NextCursor, err
		})
}

// agoFlag is a time, given as how long it is before now; 0 is the zero time.
type agoFlag struct{ time.Time }

// UnmarshalText reads the flag.
func (a *agoFlag) UnmarshalText(text []byte) error {
	duration, err := parseDuration(string(text))
	switch {
	case err != nil:
		return err
	case duration < 0:
		return fmt.Errorf("%s is negative", text)
	case duration == 0:
		a.Time = time.Time{}
	default:
		a.Time = time.Now().Add(-duration)
	}
	return nil
}

func rejectionRow(r api.Rejection) []string {
	code := string(r.Code)
	if r.Reason != "" {
		code += "/" + r.Reason
	}
	presented := ""
	if r.Token != nil {
		presented = api.FencingToken{Token: *r.Token, Sequence: r.Sequence}.String()
	}
	return []string{
		r.LastAt.UTC().Format(time.RFC3339), r.Resource, r.Key, code, presented, newer(r), late(r.LateMS), r.OwnerID,
		r.Principal, r.Source, strconv.FormatInt(r.Count, 10),
	}
}

// newer is what shut the write out: the last write of the same lease, or a newer token.
func newer(r api.Rejection) string {
	newest := max(r.GrantedToken, r.LastToken)
	switch {
	case r.Reason == "reused":
		return writeNumber(r.LastToken, r.LastSequence)
	case newest > 0 && (r.Token == nil || newest != *r.Token):
		return strconv.FormatInt(newest, 10)
	}
	return ""
}

// writeNumber is 34.2, or 34 for a write that was not numbered.
func writeNumber(token, sequence int64) string {
	number := api.FencingToken{Token: token}
	if sequence > 0 {
		number.Sequence = &sequence
	}
	return number.String()
}

// late is a duration that is short to read: a zombie's delay needs no more than three digits.
func late(ms *int64) string {
	if ms == nil {
		return ""
	}
	delay := time.Duration(*ms) * time.Millisecond
	switch {
	case delay >= time.Minute:
		delay = delay.Round(time.Second)
	case delay >= time.Second:
		delay = delay.Round(100 * time.Millisecond)
	}
	return delay.String()
}

type auditCmd struct {
	listFlags
	Action    string  `help:"Only this action, such as lease_broken." placeholder:"ACTION"`
	Principal string  `help:"Only by this principal." placeholder:"NAME"`
	Name      string  `help:"Only on this lock or resource, or the policy of this prefix." placeholder:"NAME"`
	Prefix    string  `help:"Only on names that begin with this text." placeholder:"TEXT"`
	Since     agoFlag `help:"Only those of the last while, such as 24h; 0: all." default:"0"`
	Until     agoFlag `help:"Only those longer ago than this; 0: all." default:"0"`
}

// Help is shown by "fencegate audit --help".
func (auditCmd) Help() string {
	return "A line is an action: a policy was set or deleted, a lease broken, a fence set, a key created, rotated or " +
		"revoked, a table protected, unprotected, opened or closed, a database accepted. DETAILS say what was changed."
}

// Run shows the audit log.
func (c *auditCmd) Run(ctx context.Context, con *console) error {
	which := admin.AuditQuery{
		Action: c.Action, Principal: c.Principal, Name: c.Name, Prefix: c.Prefix, Since: c.Since.Time, Until: c.Until.Time,
	}
	heading := []string{"WHEN", "ACTION", "NAME", "PRINCIPAL", "ADDRESS", "DETAILS"}
	return listPages(ctx, con, c.listFlags, heading, auditRow,
		func(ctx context.Context, gateway calls, cursor string, limit int) ([]api.AuditEntry, string, error) {
			which.Cursor, which.Limit = cursor, limit
			page, err := gateway.Audit(ctx, which)
			return page.Entries, page.NextCursor, err
		})
}

func auditRow(e api.AuditEntry) []string {
	return []string{
		e.At.UTC().Format(time.RFC3339), e.Action, e.Name, e.Principal, e.Address, string(e.Details),
	}
}
