package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// valueBytesMax is as much as a gateway can be configured to store in one value; most store less.
const valueBytesMax = 256 << 20

type putCmd struct {
	clientFlags
	writeFlags
	Resource    string  `arg:"" help:"Name of the resource, equal to that of its lock. A dot: the lock of \"fencegate run\" that this runs under."`
	Key         string  `arg:"" help:"Key of the record."`
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
	name, err := resource(c.Resource)
	if err != nil {
		return err
	}
	token, err := c.number()
	if err != nil {
		return err
	}
	value, err := c.value(con.in)
	if err != nil {
		return err
	}
	write := lockclient.Write{
		Token: token, LeaseID: c.leaseID(), ContentType: cmp.Or(c.ContentType, guessType(value)), Value: value,
		IfMatch: c.IfMatch, IfNoneMatch: c.IfNoneMatch,
	}
	return answer(ctx, con, c.clientFlags, resultFields,
		func(ctx context.Context, client *lockclient.Client) (api.WriteResult, error) {
			return client.API().Put(ctx, name, c.Key, write)
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
