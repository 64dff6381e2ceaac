package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// valueBytesMax is as much as a gateway can be configured to store in one value; most store less.
const valueBytesMax = 256 << 20

type putCmd struct {
	clientFlags
	writeFlags
	Value       *string `arg:"" optional:"" help:"What to store. Absent or -: the standard input."`
	File        string  `help:"Store what is in this file." type:"path" placeholder:"PATH"`
	ContentType string  `help:"Type of the value. Default: application/json if it is JSON, else text/plain if it is UTF-8, else application/octet-stream." placeholder:"TYPE"`
	IfMatch     *int64  `help:"Only if the record has this version." placeholder:"VERSION" xor:"condition"`
	IfNoneMatch bool    `help:"Only if there is no record." xor:"condition"`
}

// Help is shown by "fencegate put --help".
func (putCmd) Help() string {
	return "Inside of \"fencegate run\" token, lease and gateway are in the environment: \"fencegate put . KEY VALUE\". " +
		"A token admits one write; to make more under it, number them with --sequence 1, 2, …"
}

// Run stores a record.
func (c *putCmd) Run(ctx context.Context, con *console) error {
	name, write, err := c.write()
	if err != nil {
		return err
	}
	if write.Value, err = c.value(con.in); err != nil {
		return err
	}
	write.ContentType = cmp.Or(c.ContentType, guessType(write.Value))
	write.IfMatch, write.IfNoneMatch = c.IfMatch, c.IfNoneMatch
	return answer(ctx, con, c.clientFlags, resultFields,
		func(ctx context.Context, gateway calls) (api.WriteResult, error) {
			return gateway.Put(ctx, name, c.Key, write)
		})
}

func (c *putCmd) value(stdin io.Reader) ([]byte, error) {
	fromStdin := c.Value == nil || *c.Value == "-"
	switch {
	case c.File != "" && c.Value != nil:
		return nil, usagef("give a value or --file, not both")
	case c.File != "":
		file, err := os.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		return readBounded(file, c.File)
	case fromStdin:
		return readBounded(stdin, "the standard input")
	}
	return []byte(*c.Value), nil
}

func readBounded(source io.Reader, name string) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(source, valueBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(value) > valueBytesMax {
		return nil, &api.Problem{
			Type: "about:blank", Title: "Too large", Status: 413, Code: api.CodeTooLarge,
			Detail: fmt.Sprintf("%s is over the limit of %d bytes of a value", name, valueBytesMax),
		}
	}
	return value, nil
}

func guessType(value []byte) string {
	switch {
	case json.Valid(value):
		return "application/json"
	case utf8.Valid(value):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

func resultFields(result api.WriteResult) []field {
	token := api.FencingToken{Token: result.FencingToken, Sequence: result.Sequence}
	fields := []field{
		{"resource", result.Resource},
		{"key", result.Key},
		{"version", strconv.FormatInt(result.Version, 10)},
		{"fencing_token", token.String()},
	}
	if result.Replayed {
		fields = append(fields, field{"replayed", "true"})
	}
	return fields
}

type deleteCmd struct {
	clientFlags
	writeFlags
	IfMatch *int64 `help:"Only if the record has this version." placeholder:"VERSION"`
}

// Run deletes a record.
func (c *deleteCmd) Run(ctx context.Context, con *console) error {
	name, removal, err := c.write()
	if err != nil {
		return err
	}
	removal.IfMatch = c.IfMatch
	return answer(ctx, con, c.clientFlags, resultFields,
		func(ctx context.Context, gateway calls) (api.WriteResult, error) {
			return gateway.Delete(ctx, name, c.Key, removal)
		})
}

type getCmd struct {
	clientFlags
	Resource string `arg:"" help:"Name of the resource. A dot: the lock of \"fencegate run\" that this runs under."`
	Key      string `arg:"" help:"Key of the record."`
	Durable  bool   `help:"Wait until what was read is as durable as an acknowledged write: no failover takes it back."`
}

// Help is shown by "fencegate get --help".
func (getCmd) Help() string {
	return "The value is written as it was stored. With --output json a document has its version, its type and the " +
		"token of the write that stored it, and holds the value as \"value\" if that is JSON, else as \"value_base64\"."
}

// recordDocument is a record in JSON. A value is written like one of a transaction.
type recordDocument struct {
	Resource     string          `json:"resource"`
	Key          string          `json:"key"`
	Version      int64           `json:"version"`
	FencingToken int64           `json:"fencing_token"`
	Sequence     *int64          `json:"sequence,omitempty"`
	ContentType  string          `json:"content_type"`
	Value        json.RawMessage `json:"value,omitempty"`
	ValueBase64  *string         `json:"value_base64,omitempty"`
}

// Run reads a record.
func (c *getCmd) Run(ctx context.Context, con *console) error {
	name, err := resource(c.Resource)
	if err != nil {
		return err
	}
	return c.call(ctx, func(ctx context.Context, gateway calls) error {
		var opts []lockclient.ReadOption
		if c.Durable {
			opts = append(opts, lockclient.Durable())
		}
		record, err := gateway.Get(ctx, name, c.Key, opts...)
		switch {
		case err != nil:
			return err
		case con.format.documents():
			return con.document(recordDocumentOf(name, c.Key, record))
		}
		_, err = con.out.Write(record.Value)
		return err
	})
}

func recordDocumentOf(resource, key string, record lockclient.Record) recordDocument {
	document := recordDocument{
		Resource: resource, Key: key, Version: record.Version, ContentType: record.ContentType,
		FencingToken: record.Token.Token, Sequence: record.Token.Sequence,
	}
	mediaType, _, _ := mime.ParseMediaType(record.ContentType)
	if mediaType == "application/json" && json.Valid(record.Value) {
		document.Value = record.Value
		return document
	}
	document.ValueBase64 = new(base64.StdEncoding.EncodeToString(record.Value))
	return document
}

// recordCmds are the commands below "fencegate record".
type recordCmds struct {
	Ls recordLsCmd `cmd:"" help:"List the records of a resource by key, without their values."`
}

type recordLsCmd struct {
	listFlags
	Resource string `arg:"" help:"Name of the resource. A dot: the lock in FENCEGATE_LOCK."`
	Prefix   string `help:"Only keys that begin with this." placeholder:"TEXT"`
}

// Run lists records.
func (c *recordLsCmd) Run(ctx context.Context, con *console) error {
	name, err := resource(c.Resource)
	if err != nil {
		return err
	}
	heading := []string{"KEY", "VERSION", "TOKEN", "TYPE", "SIZE", "UPDATED"}
	return listPages(ctx, con, c.listFlags, heading, recordRow,
		func(ctx context.Context, gateway calls, cursor string, limit int) ([]api.RecordInfo, string, error) {
			page, err := gateway.Records(ctx, name, lockclient.RecordsQuery{Prefix: c.Prefix, Limit: limit, Cursor: cursor})
			return page.Records, page.NextCursor, err
		})
}

func recordRow(record api.RecordInfo) []string {
	return []string{
		record.Key, strconv.FormatInt(record.Version, 10),
		api.FencingToken{Token: record.FencingToken, Sequence: record.Sequence}.String(), record.ContentType,
		strconv.FormatInt(record.Size, 10), clock(record.UpdatedAt),
	}
}

// The environment that "fencegate run" gives its command, beside that of --url and of the connection.
const (
	variableLock    = "FENCEGATE_LOCK"
	variableToken   = "FENCEGATE_TOKEN"
	variableLeaseID = "FENCEGATE_LEASE_ID"
	variableOwnerID = "FENCEGATE_OWNER_ID"
)

// variableSessionID is read as the flag --session-id.
const variableSessionID = "FENCEGATE_SESSION_ID"

// resource reads the name of a resource. "." is that of the lock that this runs under, "./x" is x below it: no name has
// a segment ".".
func resource(given string) (string, error) {
	below, isBelow := strings.CutPrefix(given, "./")
	if given != "." && !isBelow {
		return given, nil
	}
	lock := os.Getenv(variableLock)
	switch {
	case lock == "":
		return "", usagef("%s means the lock in %s, which \"fencegate run\" and \"lock acquire -o env\" set: it is not set",
			given, variableLock)
	case isBelow:
		return lock + "/" + below, nil
	}
	return lock, nil
}

// writeFlags say what is written, and under which lease.
type writeFlags struct {
	Resource string    `arg:"" help:"Name of the resource, equal to that of its lock. A dot: the lock of \"fencegate run\" that this runs under."`
	Key      string    `arg:"" help:"Key of the record."`
	Token    tokenFlag `help:"Fencing token of the lease: 34, or 34.2 for the second of many writes under it." required:"" placeholder:"TOKEN"`
	Sequence *int64    `help:"Number of this write under the token, where that has none: 1 for the first, then greater ones. Without it, a token admits one write." placeholder:"N"`
	LeaseID  string    `help:"Check that the token belongs to this lease." placeholder:"UUID"`
}

// write returns the name of the resource, and a write under the lease.
func (f writeFlags) write() (name string, write lockclient.Write, err error) {
	if name, err = resource(f.Resource); err != nil {
		return "", write, err
	}
	write.Token, err = f.number()
	write.LeaseID = f.leaseID()
	return name, write, err
}

// number is the token with its sequence.
func (f writeFlags) number() (api.FencingToken, error) {
	token := f.Token.FencingToken
	switch {
	case f.Sequence == nil:
		return token, nil
	case token.Sequence != nil:
		return token, usagef("--token %s has a sequence: leave out --sequence %d", token, *f.Sequence)
	case *f.Sequence < 0 || *f.Sequence > api.MaxToken:
		return token, usagef("--sequence is %d, it must be 0 to 2^53-1", *f.Sequence)
	}
	token.Sequence = f.Sequence
	return token, nil
}

// leaseID is the one that was given. The lease_id of the lock that this runs under says nothing of a token that is
// another's.
func (f writeFlags) leaseID() string {
	within, err := api.ParseFencingToken(os.Getenv(variableToken))
	if f.LeaseID == os.Getenv(variableLeaseID) && err == nil && within.Token != f.Token.Token {
		return ""
	}
	return f.LeaseID
}
