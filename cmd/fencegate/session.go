package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// sessionCmds are the commands below "fencegate session".
type sessionCmds struct {
	Create    sessionCreateCmd    `cmd:"" help:"Create a session: one TTL and one heartbeat for any number of leases."`
	Keepalive sessionKeepaliveCmd `cmd:"" help:"Extend a session, and all leases in it, by its TTL from now."`
	Get       sessionGetCmd       `cmd:"" help:"Show a session."`
	Ls        sessionLsCmd        `cmd:"" help:"List sessions, the newest first, without their secrets."`
	End       sessionEndCmd       `cmd:"" help:"End a session, and release all leases in it."`
}

// sessionFlag names a session that the caller has made.
type sessionFlag struct {
	ID        string `arg:"" optional:"" help:"The secret of the session, which create printed. Default: --session-id."`
	SessionID string `help:"The secret of the session, too." placeholder:"UUID"`
}

func (f sessionFlag) session() (string, error) {
	id := cmp.Or(f.ID, f.SessionID)
	if id == "" {
		return "", usagef("name the session, or set %s", variableSessionID)
	}
	return id, nil
}

// answerSession makes a call for the session that the flags name, and shows its answer.
func answerSession[T any](
	ctx context.Context, con *console, flags clientFlags, session sessionFlag, fields func(T) []field,
	call func(gateway calls, ctx context.Context, id string) (T, error),
) error {
	id, err := session.session()
	if err != nil {
		return err
	}
	return answer(ctx, con, flags, fields, func(ctx context.Context, gateway calls) (T, error) {
		return call(gateway, ctx, id)
	})
}

type sessionCreateCmd struct {
	clientFlags
	OwnerID  string           `help:"The owner." default:"${owner}"`
	TTL      millisecondsFlag `help:"How long it lasts unless it is kept alive, ${limits}. Default: 30s." set:"limits=100ms to 24h" placeholder:"DURATION"`
	Metadata jsonFlag         `help:"A JSON object that is stored with it." placeholder:"JSON"`
}

// Run makes a session.
func (c *sessionCreateCmd) Run(ctx context.Context, con *console) error {
	request := api.SessionRequest{OwnerID: c.OwnerID, TTLMS: c.TTL.ms, Metadata: json.RawMessage(c.Metadata)}
	return answer(ctx, con, c.clientFlags, sessionFields, func(ctx context.Context, gateway calls) (api.Session, error) {
		return gateway.CreateSession(ctx, request)
	})
}

type sessionKeepaliveCmd struct {
	clientFlags
	sessionFlag
}

// Run keeps a session alive.
func (c *sessionKeepaliveCmd) Run(ctx context.Context, con *console) error {
	return answerSession(ctx, con, c.clientFlags, c.sessionFlag, sessionFields, calls.KeepSessionAlive)
}

type sessionGetCmd struct {
	clientFlags
	sessionFlag
}

// Run shows a session.
func (c *sessionGetCmd) Run(ctx context.Context, con *console) error {
	return answerSession(ctx, con, c.clientFlags, c.sessionFlag, sessionFields, calls.Session)
}

type sessionLsCmd struct {
	listFlags
	OwnerID string `help:"Only those of this owner. FENCEGATE_OWNER_ID, which \"fencegate run\" sets, does not select." placeholder:"ID" env:"-"`
	State   string `help:"Only those that are live, ended or expired." enum:",live,ended,expired" default:"" placeholder:"STATE"`
}

// Run lists sessions.
func (c *sessionLsCmd) Run(ctx context.Context, con *console) error {
	heading := []string{"SESSION", "STATE", "OWNER", principalHeading, "LEASES", "EXPIRES"}
	return listPages(ctx, con, c.listFlags, heading, sessionRow,
		func(ctx context.Context, gateway calls, cursor string, limit int) ([]api.SessionInfo, string, error) {
			which := admin.SessionsQuery{OwnerID: c.OwnerID, State: c.State, Limit: limit, Cursor: cursor}
			page, err := gateway.Sessions(ctx, which)
			return page.Sessions, page.NextCursor, err
		})
}

func sessionRow(session api.SessionInfo) []string {
	return []string{session.Handle + "…", session.State, session.OwnerID, session.Principal,
		strconv.FormatInt(session.Leases, 10), clock(session.ExpiresAt)}
}

type sessionEndCmd struct {
	clientFlags
	sessionFlag
}

// Run ends a session.
func (c *sessionEndCmd) Run(ctx context.Context, con *console) error {
	return answerSession(ctx, con, c.clientFlags, c.sessionFlag, sessionEndedFields, calls.EndSession)
}

func sessionEndedFields(ended api.SessionEnded) []field {
	return []field{
		{"ended", strconv.FormatBool(ended.Ended)}, {"released", strconv.FormatInt(ended.Released, 10)},
	}
}

func sessionFields(session api.Session) []field {
	fields := []field{
		{"session_id", session.SessionID},
		{"owner_id", session.OwnerID},
		{"state", session.State},
		{"ttl", (time.Duration(session.TTLMS) * time.Millisecond).String()},
		{"created_at", clock(session.CreatedAt)},
		{"expires_at", clock(session.ExpiresAt)},
	}
	if session.Leases != nil {
		fields = append(fields, field{"leases", strconv.FormatInt(*session.Leases, 10)})
	}
	if session.Metadata != nil {
		fields = append(fields, field{"metadata", string(session.Metadata)})
	}
	return fields
}
