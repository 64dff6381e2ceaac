package writes

import (
	"cmp"
	"encoding/base64"
	"mime"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// The tokens and operations that bulk requests and transactions carry in JSON.

const contentTypeDefault = "application/octet-stream"

func writeTokenOf(given api.WriteToken) (store.WriteToken, error) {
	resource, err := endpoint.ParseName("resource", given.Resource)
	if err != nil {
		return store.WriteToken{}, err
	}
	token := store.WriteToken{Resource: resource, Sequence: given.Sequence}
	if given.FencingToken != nil {
		switch {
		case *given.FencingToken < 1:
			return token, endpoint.InvalidToken("fencing_token must be 1 to 2^53-1.")
		case *given.FencingToken > api.MaxToken:
			return token, endpoint.InvalidToken("fencing_token must be 1 to 2^53-1; " + api.TokenTooGreat + ".")
		}
		token.Token = *given.FencingToken
	}
	if given.Sequence != nil && (*given.Sequence < 0 || *given.Sequence > api.MaxToken) {
		return token, endpoint.InvalidToken("sequence must be 0 to 2^53-1.")
	}
	if given.LeaseID != nil {
		id, err := endpoint.ParseLeaseID("lease_id", *given.LeaseID)
		if err != nil {
			return token, err
		}
		token.LeaseID = &id
	}
	return token, nil
}

// operationOf reads everything of an operation on a record but its resource.
func operationOf(op *api.Op) (store.Operation, error) {
	operation := store.Operation{Kind: store.Kind(op.Op), Expect: op.IfVersion}
	var err error
	if op.Row != nil || op.Rows != nil || op.Set != nil || op.Where != nil || op.Conflict != nil ||
		op.Returning != nil || op.ExpectRows != nil {
		return operation, endpoint.Invalid("row, rows, set, where, conflict, returning and expect_rows go with table.")
	}
	if operation.Key, err = endpoint.ParseName("key", op.Key); err != nil {
		return operation, err
	}
	if op.IfVersion != nil && *op.IfVersion < 0 {
		return operation, endpoint.Invalid("if_version is %d; it is a version, or 0: there must be no record.", *op.IfVersion)
	}
	switch operation.Kind {
	case store.Put:
		operation.Value, operation.ContentType, err = valueOf(op)
		return operation, err
	case store.Delete:
		if op.Value != nil || op.ValueBase64 != nil || op.ContentType != "" {
			return operation, endpoint.Invalid("a delete has no value.")
		}
		return operation, nil
	}
	return operation, endpoint.Invalid("op is %q; it must be put or delete.", endpoint.Clip(op.Op))
}

// tableOperationOf reads everything of an operation on a table but its resource. The store checks it.
func tableOperationOf(op *api.Op) (*store.TableOperation, error) {
	if op.Key != "" || op.Value != nil || op.ValueBase64 != nil || op.ContentType != "" || op.IfVersion != nil {
		return nil, endpoint.Invalid(
			"key, value, value_base64, content_type and if_version are of records, and there is a table.",
		)
	}
	operation := &store.TableOperation{
		Kind: store.Kind(op.Op), Table: op.Table, Row: op.Row, Rows: op.Rows, Where: op.Where,
		Conflict: op.Conflict, Returning: op.Returning, ExpectRows: op.ExpectRows,
	}
	if operation.Kind == store.Update {
		operation.Row, op.Set = op.Set, op.Row
	}
	if op.Set != nil {
		return nil, endpoint.Invalid("update requires set; insert and upsert require row or rows.")
	}
	return operation, nil
}

func valueOf(op *api.Op) (value []byte, contentType string, err error) {
	switch {
	case (op.Value != nil) == (op.ValueBase64 != nil):
		return nil, "", endpoint.Invalid("a put has either value (JSON) or value_base64 (any bytes).")
	case op.Value != nil && op.ContentType != "":
		return nil, "", endpoint.Invalid("content_type goes with value_base64; a value is application/json.")
	case op.Value != nil:
		return op.Value, "application/json", nil
	}
	value, err = base64.StdEncoding.DecodeString(*op.ValueBase64)
	if err != nil {
		return nil, "", endpoint.Invalid("value_base64 is not base64.")
	}
	contentType = cmp.Or(op.ContentType, contentTypeDefault)
	if isJSON(contentType) && !validJSON(value) {
		return nil, "", endpoint.Invalid(
			"value_base64 is not JSON, though its content_type is %s.", endpoint.Clip(contentType),
		)
	}
	return value, contentType, nil
}

func isJSON(contentType string) bool {
	switch contentType { // the usual spellings
	case "application/json":
		return true
	case contentTypeDefault, "text/plain":
		return false
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"))
}

// validJSON checks a value against RFC 8259, UTF-8 included. Names may repeat: the RFC only advises against it.
func validJSON(value []byte) bool {
	return jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true))
}
