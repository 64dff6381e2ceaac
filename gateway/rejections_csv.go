package gateway

import (
	"encoding/csv"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const (
	csvType = "text/csv"
	// csvRowsAtOnce is how many rows are read from the database, and written, at a time.
	csvRowsAtOnce = 500
)

// wantsCSV reports whether a list is asked for as CSV: by format, and without that by Accept, unless JSON would do, too.
func wantsCSV(r *http.Request, values url.Values) (bool, error) {
	switch values.Get("format") {
	case "csv":
		return true, nil
	case "json":
		return false, nil
	case "":
	default:
		return false, invalid("format must be json or csv.")
	}
	csv := false
	for _, header := range r.Header.Values("Accept") {
		for accepted := range strings.SplitSeq(header, ",") {
			mediaType, _, _ := mime.ParseMediaType(accepted)
			switch mediaType {
			case csvType:
				csv = true
			case "application/json", "application/*", "*/*":
				return false, nil
			}
		}
	}
	return csv, nil
}

// rejectionColumns are those of the CSV, and the order of the fields in rejectionRow.
var rejectionColumns = []string{
	"id", "first_at", "last_at", "count", "resource", "key", "code", "reason", "token", "sequence", "superseded_by", "granted_token", "last_token",
	"last_sequence", "owner_id", "late_ms", "source", "address",
}

// exportRejections answers with all that match, a few at a time: neither the gateway nor the database keeps more of them than their IDs while a
// client reads slowly. What can't be read to its end breaks off, so that nobody takes it for all.
func (g *Gateway) exportRejections(w http.ResponseWriter, r *http.Request, page page, filter store.RejectionFilter, order store.RejectionOrder) error {
	if page.values.Has("limit") || page.values.Has("cursor") {
		return invalid("CSV has all that match: leave out limit and cursor.")
	}
	ids, err := g.rejectionIDs(r, filter, order)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", csvType+"; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", `attachment; filename="rejections.csv"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if err := g.writeRejections(w, r, ids); err != nil {
		if !errors.Is(err, errClientGone) {
			g.config.Logger.WarnContext(r.Context(), "an export of rejections broke off", "error", err)
		}
		abandon(w)
	}
	return nil
}

func (g *Gateway) rejectionIDs(r *http.Request, filter store.RejectionFilter, order store.RejectionOrder) ([]int64, error) {
	ctx, cancel := g.work(r)
	defer cancel()
	return g.backend.RejectionIDs(ctx, filter, order)
}

func (g *Gateway) writeRejections(w http.ResponseWriter, r *http.Request, ids []int64) error {
	controller := http.NewResponseController(w)
	writer := csv.NewWriter(w)
	_ = writer.Write(rejectionColumns) // errors stay with the writer
	for {
		_ = controller.SetWriteDeadline(time.Now().Add(g.answerTimeout)) // fails where the write does
		writer.Flush()
		if writer.Error() != nil || r.Context().Err() != nil {
			return errClientGone
		}
		if len(ids) == 0 {
			return nil
		}
		part := ids[:min(csvRowsAtOnce, len(ids))]
		ids = ids[len(part):]
		rejections, err := g.rejectionsOf(r, part)
		if err != nil {
			return err
		}
		for i := range rejections {
			_ = writer.Write(rejectionRow(&rejections[i]))
		}
	}
}

func (g *Gateway) rejectionsOf(r *http.Request, ids []int64) ([]store.Rejection, error) {
	ctx, cancel := g.work(r)
	defer cancel()
	return g.backend.RejectionsOf(ctx, ids)
}

func rejectionRow(rejection *store.Rejection) []string {
	answer := rejectionAnswer(rejection)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	numberOrNone := func(n *int64) string {
		if n == nil {
			return ""
		}
		return number(*n)
	}
	return []string{
		number(answer.ID), csvTime(answer.FirstAt), csvTime(answer.LastAt), number(answer.Count), harmless(answer.Resource), harmless(answer.Key),
		string(answer.Code), harmless(answer.Reason), numberOrNone(answer.Token), numberOrNone(answer.Sequence), numberOrNone(answer.SupersededBy),
		number(answer.GrantedToken), number(answer.LastToken), number(answer.LastSequence), harmless(answer.OwnerID),
		numberOrNone(answer.LateMS), harmless(answer.Source), harmless(answer.Address),
	}
}

func csvTime(at api.Time) string {
	text, _ := at.MarshalText() // it never fails
	return string(text)
}

// harmless is a text that no spreadsheet takes for a formula: one that could be has an apostrophe before it. The signs are those of OWASP's
// "CSV Injection", the wide forms among them.
func harmless(text string) string {
	const signs = "=+-@\t\r\n＝＋－＠"
	first, size := utf8.DecodeRuneInString(text)
	if size > 0 && strings.ContainsRune(signs, first) {
		return "'" + text
	}
	return text
}
