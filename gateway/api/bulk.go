package api

import "encoding/json"

// BulkContentType is the media type of POST /v1/writes, both ways: a JSON document a line, each ended by a line feed.
const BulkContentType = "application/x-ndjson"

// BulkWrite is a line of the body of POST /v1/writes: one write, independent of those in the other lines.
type BulkWrite struct {
	// Op is "put" or "delete".
	Op           string  `json:"op"`
	Resource     string  `json:"resource"`
	Key          string  `json:"key"`
	FencingToken *int64  `json:"fencing_token"`
	Sequence     *int64  `json:"sequence,omitempty"`
	LeaseID      *string `json:"lease_id,omitempty"`
	// Value, ValueBase64, ContentType and IfVersion are those of an Op.
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 *string         `json:"value_base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	IfVersion   *int64          `json:"if_version,omitempty"`
}

// BulkVerdict is the answer to a line of POST /v1/writes. The verdicts stand in the order of the lines.
type BulkVerdict struct {
	// Line is the number of the line in the body, from 1; empty lines count, and have no verdict.
	Line int64 `json:"line"`
	// Status is what a single write would have been answered with.
	Status int `json:"status"`

	// Version is the one that an admitted write gave; of version_mismatch the record's current one, 0 where there is no record.
	Version *int64 `json:"version,omitempty"`
	// FencingToken is that of an admitted write.
	FencingToken *int64 `json:"fencing_token,omitempty"`
	// Sequence is the write's, if it was numbered.
	Sequence *int64 `json:"sequence,omitempty"`
	// Replayed is there for an admitted write: it had been applied before and this is its first answer again.
	Replayed *bool `json:"replayed,omitempty"`

	// Code is empty for an admitted write. It and the fields below are those of a Problem.
	Code         Code    `json:"code,omitempty"`
	Retryable    bool    `json:"retryable,omitempty"`
	Detail       string  `json:"detail,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Resource     string  `json:"resource,omitempty"`
	Token        *int64  `json:"token,omitempty"`
	LastToken    *int64  `json:"last_token,omitempty"`
	LastSequence *int64  `json:"last_sequence,omitempty"`
	GrantedToken *int64  `json:"granted_token,omitempty"`
	Outcome      Outcome `json:"outcome,omitempty"`
}

// Problem is the refusal as a single write would have been answered; nil for an admitted write.
func (v BulkVerdict) Problem() *Problem {
	if v.Code == "" {
		return nil
	}
	return &Problem{
		Type: "urn:fencegate:problem:" + string(v.Code), Title: string(v.Code), Status: v.Status, Detail: v.Detail,
		Code: v.Code, Retryable: v.Retryable, Reason: v.Reason, Resource: v.Resource, Token: v.Token, Sequence: v.Sequence,
		LastToken: v.LastToken, LastSequence: v.LastSequence, GrantedToken: v.GrantedToken, Version: v.Version, Outcome: v.Outcome,
	}
}

// Why the gateway ended the answer to POST /v1/writes.
const (
	// BulkComplete: every line of the body has its verdict.
	BulkComplete = "complete"
	// BulkShutdown: the gateway is ending. Go on at another one.
	BulkShutdown = "shutdown"
	// BulkIdle: a line did not arrive within the body timeout.
	BulkIdle = "idle"
	// BulkUnavailable: a line could not be decided, for the database is unreachable or overloaded.
	BulkUnavailable = "unavailable"
	// BulkBroken: the body broke off. A line that was cut is not taken.
	BulkBroken = "broken"
	// BulkFailed: a defect of the gateway, whose log says more.
	BulkFailed = "failed"
)

// BulkEnd is the last line of the answer to POST /v1/writes. An answer without it was cut off.
type BulkEnd struct {
	// End says why, e.g. BulkComplete.
	End string `json:"end"`
	// NextLine is the number of the first line that was not taken: all before it have their verdicts, and of it and those after it nothing was
	// done.
	NextLine int64 `json:"next_line"`
}
