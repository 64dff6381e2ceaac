package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/store"
)

const (
	resourceRoute = "/v1/resources/{resource" + anyText
	recordRoute   = resourceRoute + "/records/{key" + anyText
)

func (g *Gateway) recordRoutes(router *mux.Router) {
	g.route(router, recordRoute, methods{
		"PUT": g.putRecord, "DELETE": g.deleteRecord, "GET": g.getRecord, "HEAD": g.getRecord,
	})
	g.route(router, resourceRoute+"/records", methods{"GET": g.answering(g.listRecords)})
	g.route(router, resourceRoute+"/fence", methods{
		"GET": answeringNamed(g, resourceName, g.getFence), "PUT": acting(g, resourceName, g.setFence),
	})
}

func (g *Gateway) putRecord(w *answerWriter, r *http.Request) error {
	write, err := writeOf(r, store.Put)
	if err != nil {
		return err
	}
	if write.Token == 0 { // the rule refuses it whatever the body is
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

func (g *Gateway) deleteRecord(w *answerWriter, r *http.Request) error {
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
	if write.Resource, write.Key, err = pathRecord(r); err != nil {
		return write, err
	}
	if _, err = query(r); err != nil {
		return write, err
	}
	if err := readWriteToken(r.Header, &write.WriteToken); err != nil {
		return write, err
	}
	write.Expect, err = expectedVersion(r.Header)
	return write, err
}

// pathRecord reads the names in the path of a record.
func pathRecord(r *http.Request) (resource, key store.Name, err error) {
	if resource, err = resourceName(r); err != nil {
		return "", "", err
	}
	key, err = keyName(r)
	return resource, key, err
}

// readWriteToken reads the token and the lease_id. A write without a token is for the rule to reject.
func readWriteToken(header http.Header, token *store.WriteToken) error {
	given := header[api.HeaderFencingToken]
	if other := header[api.HeaderFencingTokenX]; len(other) > 0 {
		given = slices.Concat(given, other)
	}
	switch len(given) {
	case 0:
	case 1:
		parsed, err := api.ParseFencingToken(given[0])
		if err != nil {
			return invalidToken(api.HeaderFencingToken + ": " + err.Error() + ".")
		}
		token.Token, token.Sequence = parsed.Token, parsed.Sequence
	default:
		return invalidToken("There are several headers " + api.HeaderFencingToken + "; a write carries one token.")
	}
	switch given := header[api.HeaderLeaseID]; len(given) {
	case 0:
	case 1:
		id, err := parseLeaseID("The header "+api.HeaderLeaseID, given[0])
		if err != nil {
			return err
		}
		token.LeaseID = &id
	default:
		return invalid("There are %d headers %s; a write belongs to one lease.", len(given), api.HeaderLeaseID)
	}
	return nil
}

func (g *Gateway) write(w *answerWriter, r *http.Request, write store.Write) error {
	begun := time.Now()
	result, err := g.backend.Commit(g.work(r), write)
	if err == nil {
		err = result.Err
	}
	g.countWrite(w, r, metrics.SourceHTTP, time.Since(begun), err)
	if err != nil {
		return err
	}
	answerWrite(w, &write, result)
	return nil
}

func (g *Gateway) getRecord(w *answerWriter, r *http.Request) error {
	resource, key, err := pathRecord(r)
	if err != nil {
		return err
	}
	parameters := readParameters(r, "consistency")
	read := g.backend.Record
	if parameters.choice("consistency", "default", "durable") {
		read = g.backend.DurableRecord
	}
	if parameters.err != nil {
		return parameters.err
	}
	record, err := read(g.work(r), resource, key)
	if err != nil {
		return err
	}
	return answerRecord(w, r, record)
}

// answerRecord answers a read of a record with its value, or as the request's conditions say.
func answerRecord(w *answerWriter, r *http.Request, record store.Record) error {
	tag := etag(record.Version)
	if !matches(r.Header, tag) {
		return versionMismatch(record.Version)
	}
	header := w.Header()
	header.Set("ETag", tag)
	header.Set(api.HeaderFencingToken, api.FencingToken{Token: record.Token, Sequence: record.Sequence}.String())
	header.Set("Cache-Control", "no-cache")
	if matchesNone(r.Header, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", record.ContentType)
	// Clients choose the value: a browser must not run it on the gateway's origin.
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(record.Value)))
	_, _ = w.Write(record.Value)
	return nil
}

func (g *Gateway) listRecords(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "prefix", "sort")
	resource, err := resourceName(r)
	page.fail(err)
	query := store.RecordQuery{
		Resource: resource, Prefix: page.prefix, After: page.after, Limit: page.limit,
		ByTime: page.choice("sort", "key", "updated_at"),
	}
	mark := func(last store.Record) string { return string(last.Key) }
	if query.ByTime {
		query.AfterMicros, query.After = page.numbered()
		mark = func(last store.Record) string { return fmt.Sprint(last.UpdatedAt.UnixMicro(), " ", last.Key) }
	}
	if page.err != nil {
		return nil, page.err
	}
	records, err := g.backend.Records(ctx, query)
	return api.Records{
		Resource: string(resource), Records: convert(records, recordInfo), NextCursor: nextCursor(page, records, mark),
	}, err
}

func recordInfo(record store.Record) api.RecordInfo {
	return api.RecordInfo{
		Key: string(record.Key), Version: record.Version, FencingToken: record.Token, Sequence: record.Sequence,
		ContentType: record.ContentType, Size: record.Size, UpdatedAt: api.Time{Time: record.UpdatedAt},
	}
}

// contentTypeOf reads the type of a value; the store checks it.
func contentTypeOf(header http.Header) (string, error) {
	switch given := header["Content-Type"]; len(given) {
	case 0:
		return contentTypeDefault, nil
	case 1:
		return given[0], nil
	default:
		return "", invalid("There are %d headers Content-Type; a value has one type.", len(given))
	}
}

func (g *Gateway) getFence(ctx context.Context, resource store.Name) (any, error) {
	fence, err := g.backend.Fence(ctx, resource)
	return fenceAnswer(fence), err
}

func (g *Gateway) setFence(ctx context.Context, a action[store.Name, api.FenceRequest]) (any, error) {
	if a.body.LastToken == nil {
		return nil, invalid("last_token is missing or null.")
	}
	last := store.Accepted{Token: *a.body.LastToken, Sequence: a.body.LastSequence}
	was, err := g.backend.SetFence(g.asActor(ctx, a.w, a.r), a.key, last, a.body.Reason)
	if err != nil {
		return nil, err
	}
	g.metrics.AdminAction("fence_set")
	g.config.Logger.InfoContext(ctx, "fence set", "resource", a.key, "last_token", last.Token,
		"last_sequence", last.Sequence, "previous_token", was.Token, "previous_sequence", was.Sequence,
		"reason", a.body.Reason, "by", a.w.principal.Name, "address", g.address(a.r))
	return api.FenceSet{
		Resource: string(a.key), LastToken: last.Token, LastSequence: last.Sequence,
		PreviousToken: was.Token, PreviousSequence: was.Sequence,
	}, nil
}

func fenceAnswer(fence store.Fence) api.Fence {
	return api.Fence{
		Resource: string(fence.Resource), GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence, Policy: policyAnswer(fence.Policy),
	}
}
