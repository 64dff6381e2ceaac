package main

import (
	"context"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type rejectionsCmd struct {
	clientFlags
	Resource string        `help:"Only writes to this resource." placeholder:"NAME"`
	Code     string        `help:"Only with this code: token_required, token_unknown, token_stale, lease_mismatch, lease_expired or version_mismatch." enum:",token_required,token_unknown,token_stale,lease_mismatch,lease_expired,version_mismatch" default:"" placeholder:"CODE"`
	Since    time.Duration `help:"Only those seen in the last while, such as 1h; 0: all." default:"0"`
	Limit    int           `help:"The most to list." default:"100"`
}

// Help is shown by "fencegate rejections --help".
func (rejectionsCmd) Help() string {
	return "A line is a write that was shut out, or several alike, with a COUNT. TOKEN is what was presented, NEWER what shut it " +
		"out, LATE how long after the end of its lease the latest came, OWNER whose lease the token was."
}

// Run shows rejections.
func (c *rejectionsCmd) Run(ctx context.Context, con *console) error {
	which := lockclient.RejectionsQuery{Resource: c.Resource, Code: api.Code(c.Code)}
	switch {
	case c.Since < 0:
		return usagef("--since is %s, it can't be negative", c.Since)
	case c.Since > 0:
		which.Since = time.Now().Add(-c.Since)
	}
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		rejections, more, err := follow(c.Limit, func(cursor string, limit int) ([]api.Rejection, string, error) {
			which.Cursor, which.Limit = cursor, limit
			page, err := client.API().Rejections(ctx, which)
			return page.Rejections, page.NextCursor, err
		})
		if err != nil {
			return err
		}
		if more {
			con.note("there are more than %d; --limit lists more", c.Limit)
		}
		heading := []string{"WHEN", "RESOURCE", "KEY", "CODE", "TOKEN", "NEWER", "LATE", "OWNER", "DOOR", "COUNT"}
		return list(con, heading, rejections, rejectionRow)
	})
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
		r.LastAt.UTC().Format(time.RFC3339), r.Resource, r.Key, code, presented, newer(r), late(r.LateMS), r.OwnerID, r.Door,
		strconv.FormatInt(r.Count, 10),
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
