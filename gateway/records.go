package gateway

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const contentTypeDefault = "application/octet-stream"

func (g *Gateway) putRecord(w http.ResponseWriter, r *http.Request) error {
	write, err := writeOf(r, store.Put)
	if err != nil {
		return err
	}
	if write.Token == 0 { // which the rule refuses before anything else
		write.ContentType = contentTypeDefault
		return g.write(w, r, write)
	}
	if write.Value, err = g.readBody(w, r); err != nil {
		return err
	}
	if write.ContentType, err = contentTypeOf(r.Header); err != nil {
		return err
	}
	if isJSON(write.ContentType) && !validJSON(write.Value) {
		return invalid("The value is not JSON, though its Content-Type is %s.", clip(write.ContentType))
	}
	return g.write(w, r, write)
}

func (g *Gateway) deleteRecord(w http.ResponseWriter, r *http.Request) error {
	write, err := writeOf(r, store.Delete)
	if err != nil {
		return err
	}
	return g.write(w, r, write)
}

// writeOf reads everything of a write but its value.
func writeOf(r *http.Request, kind store.Kind) (store.Write, error) {
	write := store.Write{Operation: store.Operation{Kind: kind}}
	var err error
	if write.Resource, err = pathName(r, "resource"); err != nil {
		return write, err
	}
	if write.Key, err = pathName(r, "key"); err != nil {
		return write, err
	}
	if _, err = query(r); err != nil {
		return write, err
	}
	if err := readClaim(r.Header, &write.WriteToken); err != nil {
		return write, err
	}
	write.Expect, err = expectedVersion(r.Header)
	return write, err
}

// readClaim reads the token and the lease_id; a write without a token is for the rule to reject.
func readClaim(header http.Header, claim *store.WriteToken) error {
	given := header[api.HeaderFencingToken]
	if other := header[api.HeaderFencingTokenX]; len(other) > 0 {
		given = slices.Concat(given, other)
	}
	switch len(given) {
	case 0:
	case 1:
		token, err := api.ParseFencingToken(given[0])
		if err != nil {
			return problem(http.StatusBadRequest, api.CodeInvalidToken, api.HeaderFencingToken+": "+err.Error()+".")
		}
		claim.Token, claim.Sequence = token.Token, token.Sequence
	default:
		return problem(http.StatusBadRequest, api.CodeInvalidToken, "There are several headers "+api.HeaderFencingToken+"; a write carries one token.")
	}
	switch given := header[api.HeaderLeaseID]; len(given) {
	case 0:
	case 1:
		id, err := parseLeaseID("The header "+api.HeaderLeaseID, given[0])
		if err != nil {
			return err
		}
		claim.LeaseID = &id
	default:
		return invalid("There are %d headers %s; a write is made under one lease.", len(given), api.HeaderLeaseID)
	}
	return nil
}

func (g *Gateway) write(w http.ResponseWriter, r *http.Request, write store.Write) error {
	begun := time.Now()
	result, err := g.backend.Commit(g.withSpan(g.deadline.context(), r), write)
	if err == nil {
		err = result.Err
	}
	g.judged(r, sourceHTTP, err)
	if err != nil {
		return err
	}
	g.metrics.writeTimes.http.Observe(time.Since(begun).Seconds())
	answerWrite(w, &write, result)
	return nil
}

func (g *Gateway) getRecord(w http.ResponseWriter, r *http.Request) error {
	resource, err := pathName(r, "resource")
	if err != nil {
		return err
	}
	key, err := pathName(r, "key")
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	record, err := g.backend.Record(ctx, resource, key)
	if err != nil {
		return err
	}
	if !matches(r.Header, etag(record.Version)) {
		return versionMismatch(record.Version)
	}
	header := w.Header()
	header.Set("ETag", etag(record.Version))
	header.Set(api.HeaderFencingToken, api.FencingToken{Token: record.Token, Sequence: record.Sequence}.String())
	header.Set("Cache-Control", "no-cache")
	if matchesNone(r.Header, etag(record.Version)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", record.ContentType)
	// The value is somebody's: a browser must not run it on the gateway's origin.
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(record.Value)))
	_, _ = w.Write(record.Value)
	return nil
}

// contentTypeOf reads the type of a value; whether it is one is for the store to say.
func contentTypeOf(header http.Header) (string, error) {
	switch given := header.Values("Content-Type"); len(given) {
	case 0:
		return contentTypeDefault, nil
	case 1:
		return given[0], nil
	default:
		return "", invalid("There are %d headers Content-Type; a value has one type.", len(given))
	}
}

func isJSON(contentType string) bool {
	switch contentType { // as nearly all have it
	case "application/json":
		return true
	case "application/octet-stream", "text/plain":
		return false
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"))
}

// validJSON holds a value against RFC 8259: it is UTF-8, too. Names may repeat, as they do in JSON that is older than the
// advice against it.
func validJSON(value []byte) bool {
	return jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true))
}
