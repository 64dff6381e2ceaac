package gateway

import (
	"encoding/csv"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const (
	csvType = "text/csv"
	// csvRowsAtOnce is how many rows are read from the database and written at a time.
	csvRowsAtOnce = 500
)

// wantsCSV reports whether a request asks for CSV: by format, or else by an Accept that does not allow JSON.
func (p *parameters) wantsCSV(r *http.Request) bool {
	if p.Get("format") != "" {
		return p.choice("format", "json", "csv")
	}
	csv := false
	for _, header := range r.Header.Values("Accept") {
		for accepted := range strings.SplitSeq(header, ",") {
			mediaType, _, _ := mime.ParseMediaType(accepted)
			switch mediaType {
			case csvType:
				csv = true
			case "application/json", "application/*", "*/*":
				return false
			}
		}
	}
	return csv
}

// rejectionColumns are the columns of the CSV, in the order of rejectionRow.
var rejectionColumns = []string{
	"id", "first_at", "last_at", "count", "resource", "key", "code", "reason", "token", "sequence", "superseded_by",
	"granted_token", "last_token", "last_sequence", "owner_id", "late_ms", "source", "address",
}

// exportRejections answers all rejections that match, a few at a time. While a client reads slowly, the gateway keeps
// only their IDs and the database keeps nothing. An export that fails breaks off, so that no client takes it for
// complete.
func (g *Gateway) exportRejections(w *answerWriter, r *http.Request, page page, query store.RejectionQuery) error {
	if page.Has("limit") || page.Has("cursor") {
		return invalid("CSV has all that match: leave out limit and cursor.")
	}
	ctx, cancel := g.work(r)
	ids, err := g.backend.RejectionIDs(ctx, query.RejectionFilter, query.Order)
	cancel()
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
			g.config.Logger.WarnContext(r.Context(), "export of rejections broke off", "error", err)
		}
		w.abandoned = true
	}
	return nil
}

func (g *Gateway) writeRejections(w *answerWriter, r *http.Request, ids []int64) error {
	controller := http.NewResponseController(w)
	writer := csv.NewWriter(w)
	_ = writer.Write(rejectionColumns) // the writer keeps an error
	for {
		_ = controller.SetWriteDeadline(time.Now().Add(g.answerTimeout)) // fails where the write does
		writer.Flush()
		if writer.Error() != nil || r.Context().Err() != nil {
			return errClientGone
		}
		if len(ids) == 0 {
			return nil
		}
		if err := g.stillAccepted(r); err != nil {
			return err
		}
		part := ids[:min(csvRowsAtOnce, len(ids))]
		ids = ids[len(part):]
		ctx, cancel := g.work(r)
		rejections, err := g.backend.RejectionsOf(ctx, part)
		cancel()
		if err != nil {
			return err
		}
		for i := range rejections {
			_ = writer.Write(rejectionRow(rejectionAnswer(rejections[i])))
		}
	}
}

func rejectionRow(rejection api.Rejection) []string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	optionalNumber := func(n *int64) string {
		if n == nil {
			return ""
		}
		return number(*n)
	}
	return []string{
		number(rejection.ID), csvTime(rejection.FirstAt), csvTime(rejection.LastAt), number(rejection.Count),
		harmless(rejection.Resource), harmless(rejection.Key), string(rejection.Code), harmless(rejection.Reason),
		optionalNumber(rejection.Token), optionalNumber(rejection.Sequence), optionalNumber(rejection.SupersededBy),
		number(rejection.GrantedToken), number(rejection.LastToken), number(rejection.LastSequence),
		harmless(rejection.OwnerID), optionalNumber(rejection.LateMS), harmless(rejection.Source),
		harmless(rejection.Address),
	}
}

func csvTime(at api.Time) string {
	text, _ := at.MarshalText() // it never fails
	return string(text)
}

// harmless returns a text that no spreadsheet takes for a formula: it puts an apostrophe before one that could be. The
// signs are those of OWASP's "CSV Injection", including the wide forms.
func harmless(text string) string {
	const signs = "=+-@\t\r\n＝＋－＠"
	first, size := utf8.DecodeRuneInString(text)
	if size > 0 && strings.ContainsRune(signs, first) {
		return "'" + text
	}
	return text
}
