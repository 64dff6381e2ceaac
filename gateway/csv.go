package gateway

import (
	"context"
	"encoding/csv"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencegate/fencegate/gateway/api"
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

var errCSVPage = invalid("CSV has all that match: leave out limit and cursor.")

// answerCSV answers rows as an attachment. next returns the next part of them, and none at the end. An export that fails
// breaks off, so that no client takes it for complete.
func (g *Gateway) answerCSV(
	w *answerWriter, r *http.Request, name string, columns []string, next func(context.Context) ([][]string, error),
) error {
	read := func() ([][]string, error) { return next(g.work(r)) }
	rows, err := read()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", csvType+"; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.csv"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if err := g.writeCSV(w, r, append([][]string{columns}, rows...), read); err != nil {
		if !errors.Is(err, errClientGone) {
			g.config.Logger.WarnContext(r.Context(), "export broke off", "export", name, "error", err)
		}
		w.abandoned = true
	}
	return nil
}

// writeCSV writes rows and then what read returns, until it returns no rows.
func (g *Gateway) writeCSV(w *answerWriter, r *http.Request, rows [][]string, read func() ([][]string, error)) error {
	controller := http.NewResponseController(w)
	writer := csv.NewWriter(w)
	for len(rows) > 0 {
		_ = controller.SetWriteDeadline(time.Now().Add(g.answerTimeout)) // fails where the write does
		if writer.WriteAll(rows) != nil || r.Context().Err() != nil {
			return errClientGone
		}
		err := g.stillAccepted(r)
		if err == nil {
			rows, err = read()
		}
		if err != nil {
			return err
		}
	}
	return nil
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
