package gateway

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// parse reads a write from the text of a line, which it does not keep.
//
// The decoder of encoding/json/v2 takes 1.4 µs for a line of 300 bytes here, of which a third is to see that it is JSON, names not twice; a
// reader by hand would save half of that, of the 20 µs that a write costs in all.
func (l *bulkLine) parse(text []byte, valueMax int64) error {
	if text[0] != '{' { // null would pass for an object whose fields are all absent
		return invalid("The line must be a JSON object.")
	}
	var write api.BulkWrite
	if err := json.Unmarshal(text, &write, json.RejectUnknownMembers(true)); err != nil {
		return invalidJSON(err)
	}
	claim, err := claimOf(api.WriteToken{
		Resource: write.Resource, FencingToken: write.FencingToken, Sequence: write.Sequence, LeaseID: write.LeaseID,
	})
	if err != nil {
		return err
	}
	operation := store.Operation{Kind: store.Kind(write.Op), Expect: write.IfVersion}
	if operation.Key, err = parseName("key", write.Key); err != nil {
		return err
	}
	if write.IfVersion != nil && *write.IfVersion < 0 {
		return invalid("if_version is %d; it is a version, or 0: there must be no record.", *write.IfVersion)
	}
	op := api.Op{Op: write.Op, Value: write.Value, ValueBase64: write.ValueBase64, ContentType: write.ContentType}
	switch operation.Kind {
	case store.Put:
		if operation.Value, operation.ContentType, err = valueOf(op); err != nil {
			return err
		}
	case store.Delete:
		if op.Value != nil || op.ValueBase64 != nil || op.ContentType != "" {
			return invalid("a delete has no value.")
		}
	default:
		return invalid("op is %q; it must be put or delete.", clip(write.Op))
	}
	if int64(len(operation.Value)) > valueMax {
		return problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
			"The value is over the limit of "+strconv.FormatInt(valueMax, 10)+" bytes (--body-bytes-max).")
	}
	l.write = store.Write{WriteToken: claim, Operation: operation}
	return nil
}
