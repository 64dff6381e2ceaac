package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/internal/auditlog"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

type rejectionsCmd struct {
	listFlags
	Resource  string  `help:"Only writes to this resource." placeholder:"NAME"`
	Code      string  `help:"Only with this code: token_required, token_unknown, token_stale, lease_mismatch, lease_expired or version_mismatch; of the source sql also token_reused or truncate." enum:",token_required,token_unknown,token_stale,lease_mismatch,lease_expired,version_mismatch,token_reused,truncate" default:"" placeholder:"CODE"`
	Prefix    string  `help:"Only writes to resources whose names begin with this text." placeholder:"TEXT"`
	Record    string  `help:"Only writes to the record with this key; of the source sql, to this protected table." placeholder:"KEY"`
	Reason    string  `help:"Only of token_stale, for this reason: superseded, released, reused or shared." enum:",superseded,released,reused,shared" default:"" placeholder:"REASON"`
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

// auditCmds are the commands below "fencegate audit".
type auditCmds struct {
	Ls     auditCmd       `cmd:"" default:"withargs" help:"List what administrators did, newest first."`
	Verify auditVerifyCmd `cmd:"" help:"Check that nothing of the audit log, or of an export, was changed after it was sealed."`
	Export auditExportCmd `cmd:"" help:"Write the sealed entries as lines of JSON, oldest seal first."`
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
		"revoked, a table protected, unprotected, opened or closed, a database accepted. DETAILS say what was changed. " +
		"access_refused stands for a COUNT of requests that a gateway refused."
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

// sealFlags are those of commands that read the seals of the audit log.
type sealFlags struct {
	gatewayFlags
	Timeout time.Duration `group:"connection" help:"How long the gateway may take for each part." default:"30s"`
}

// each calls work for the seals after one, the oldest first, and returns how many entries are not sealed yet.
func (f sealFlags) each(
	ctx context.Context, gateway *admin.Client, after int64, work func(*api.AuditSeal) error,
) (unsealed int64, err error) {
	for more := true; more; {
		limited, cancel := context.WithTimeout(ctx, f.Timeout)
		page, err := gateway.AuditSeals(limited, after)
		cancel()
		if err != nil {
			return 0, err
		}
		for i := range page.Seals {
			if err := work(&page.Seals[i]); err != nil {
				return 0, err
			}
			after = page.Seals[i].Seal
		}
		more, unsealed = page.More, page.Unsealed
	}
	return unsealed, nil
}

type auditVerifyCmd struct {
	sealFlags
	outputFlag

	File           string          `arg:"" optional:"" help:"An export to verify, or - for the standard input. Default: the log of the gateway." type:"path"`
	Head           []auditlog.Head `help:"A seal and its hash, as this command or a gateway's log has shown: they must still be in the log. May be repeated." placeholder:"SEAL:HASH"`
	AuditRetention time.Duration   `help:"How long the gateways keep the audit log. Entries that are younger must not be missing." default:"9600h"`
}

// Help is shown by "fencegate audit verify --help".
func (auditVerifyCmd) Help() string {
	return "Computes the hash of each entry and of each seal, and compares. It exits with 1 if anything was changed. The " +
		"owner of the database could write the whole log anew: keep the head that this shows elsewhere, and give it to " +
		"--head later."
}

// verified is the answer of "fencegate audit verify".
type verified struct {
	First    int64    `json:"first_seal"`
	Last     int64    `json:"last_seal"`
	Head     string   `json:"head,omitempty"`
	Present  int64    `json:"entries"`
	Expired  int64    `json:"expired"`
	Pruned   int64    `json:"pruned"`
	Unsealed int64    `json:"unsealed"`
	Wrong    []string `json:"wrong"`
}

// wrongMax bounds how much that is wrong is shown.
const wrongMax = 100

// Run verifies the log.
func (c *auditVerifyCmd) Run(ctx context.Context, con *console) error {
	result, wrong := verified{Wrong: []string{}}, 0
	verifier := auditlog.Verifier{KeptSince: time.Now().Add(-c.AuditRetention), Part: c.File != "", Heads: c.Head}
	verifier.Wrong = func(sentence string) {
		if wrong++; wrong <= wrongMax {
			result.Wrong = append(result.Wrong, sentence)
		}
	}
	err := c.read(ctx, con, &result, func(seal *api.AuditSeal) error {
		verifier.Add(seal)
		return nil
	})
	if err != nil {
		return err
	}
	verifier.End()
	result.First, result.Last, result.Head = verifier.First, verifier.Last.Seal, verifier.Last.String()
	result.Present, result.Expired, result.Pruned = verifier.Present, verifier.Expired, verifier.Pruned
	fields := []field{
		{"seals", fmt.Sprintf("%d to %d", result.First, result.Last)}, {"entries", strconv.FormatInt(result.Present, 10)},
		{"expired", strconv.FormatInt(result.Expired, 10)}, {"pruned", strconv.FormatInt(result.Pruned, 10)},
		{"unsealed", strconv.FormatInt(result.Unsealed, 10)}, {"head", result.Head},
	}
	for _, sentence := range result.Wrong {
		fields = append(fields, field{"wrong", sentence})
	}
	if err := con.show(result, fields); err != nil || wrong == 0 {
		return err
	}
	return fmt.Errorf("the audit log was changed; findings: %d", wrong)
}

// read reads the seals of the gateway, or of the file.
func (c *auditVerifyCmd) read(ctx context.Context, con *console, result *verified, each func(*api.AuditSeal) error) error {
	if c.File == "" {
		client, err := c.client()
		if err != nil {
			return err
		}
		defer client.Close()
		result.Unsealed, err = c.each(ctx, admin.New(client), 0, each)
		return err
	}
	from := io.NopCloser(con.in)
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		from = file
	}
	defer func() { _ = from.Close() }()
	_, err := auditlog.Read(from, each)
	return err
}

type auditExportCmd struct {
	sealFlags

	After  int64  `help:"Begin after this seal." default:"0" placeholder:"SEAL"`
	Append string `help:"Append the lines to this file, too, and begin after its last seal." type:"path" placeholder:"FILE"`
	Follow bool   `help:"Go on with entries as they are sealed, until interrupted." short:"f"`
}

// Help is shown by "fencegate audit export --help".
func (auditExportCmd) Help() string {
	return "The lines of a seal are its entries, and then the seal with its hash. An export that was interrupted is " +
		"continued with --append, or with --after and the last seal: no entry is left out, or in it twice. It is not " +
		"continued where the log has lost seals, or was written anew. Needs the scope admin on all names."
}

// followEvery is the time between two reads of the log under --follow.
const followEvery = 2 * time.Second

// Run exports the log.
func (c *auditExportCmd) Run(ctx context.Context, con *console) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	outputs := []io.Writer{con.out}
	var head auditlog.Head
	if c.Append != "" {
		file, err := c.resume(&head)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		outputs = append(outputs, file)
	}
	write := func(seal *api.AuditSeal) error {
		if seal.Hash == "" {
			return nil // there is none: verify says so
		}
		c.After = seal.Seal
		if head == (auditlog.Head{Seal: seal.Seal, Hash: seal.Hash}) {
			return nil // the file has it
		}
		if err := head.Continue(seal); err != nil {
			return err
		}
		lines := auditlog.Append(nil, seal)
		for _, out := range outputs {
			if _, err := out.Write(lines); err != nil {
				return err
			}
		}
		return nil
	}
	for away := false; ; {
		_, err := c.each(ctx, admin.New(client), c.After, write)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && c.After < head.Seal:
			return head.Lost()
		case !c.Follow || err != nil && exitCode(err) != exitUnavailable:
			return err
		case err != nil && !away:
			con.note("%v; it is tried again", err)
		}
		away = err != nil
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
		}
	}
}

// resume opens the file to append to, and sets its last seal, and the one to begin after: the log must still have the last
// one, or continue it. It removes lines at the end that have no seal.
func (c *auditExportCmd) resume(head *auditlog.Head) (*os.File, error) {
	file, err := os.OpenFile(c.Append, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	sealed, err := auditlog.Read(file, func(seal *api.AuditSeal) error {
		c.After, *head = seal.Seal-1, auditlog.Head{Seal: seal.Seal, Hash: seal.Hash}
		return nil
	})
	if errors.Is(err, auditlog.ErrCut) {
		err = file.Truncate(sealed)
	}
	if err == nil {
		_, err = file.Seek(sealed, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Append, err), file.Close())
	}
	return file, nil
}
