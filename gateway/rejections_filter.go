package gateway

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/store"
)

// rejectionFilters are the parameters that select rejections.
var rejectionFilters = []string{"resource", "prefix", "code", "reason", "source", "owner_id", "since", "until"}

// rejectionFilter reads rejectionFilters; the store checks the values.
func rejectionFilter(values url.Values) (store.RejectionFilter, error) {
	filter := store.RejectionFilter{
		Prefix: values.Get("prefix"), Verdict: store.Verdict(values.Get("code")), Reason: values.Get("reason"),
		Source: values.Get("source"), OwnerID: values.Get("owner_id"),
	}
	var err error
	if filter.Resource, err = (page{Values: values}).name("resource"); err != nil {
		return filter, err
	}
	if filter.Since, err = parseTime("since", values.Get("since")); err != nil {
		return filter, err
	}
	filter.Until, err = parseTime("until", values.Get("until"))
	return filter, err
}

// rejectionMark reads a cursor of rejectionCursor. It is the ID; in the order of the latest change, the microsecond of
// the change precedes it.
func rejectionMark(order store.RejectionOrder, cursor string) (*store.RejectionMark, error) {
	if cursor == "" {
		return nil, nil //nolint:nilnil // the list begins at its front, and that is no error
	}
	malformed := invalid("cursor must be a next_cursor that the gateway returned for a list in the same order.")
	micros, id, ordered := strings.Cut(cursor, ".")
	if !ordered {
		micros, id = "0", cursor
	}
	if ordered != (order == store.RejectionsByLastSeen) {
		return nil, malformed
	}
	var mark store.RejectionMark
	at, err := strconv.ParseInt(micros, 10, 64)
	if err == nil {
		mark.ID, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil || at < 0 || at > eventMicrosMax {
		return nil, malformed
	}
	mark.ChangedAt = time.UnixMicro(at)
	return &mark, nil
}

// eventMicrosMax is the end of the year 9999, which the database can still represent.
const eventMicrosMax = 253402300799999999

func rejectionCursor(query store.RejectionQuery, last store.Rejection) string {
	id := strconv.FormatInt(last.ID, 10)
	if query.Order == store.RejectionsByLastSeen {
		return strconv.FormatInt(last.ChangedAt.UnixMicro(), 10) + "." + id
	}
	return id
}
