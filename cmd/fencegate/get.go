package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"mime"

	"github.com/fencegate/fencegate/lockclient"
)

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
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		var opts []lockclient.ReadOption
		if c.Durable {
			opts = append(opts, lockclient.Durable())
		}
		record, err := client.API().Get(ctx, name, c.Key, opts...)
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
