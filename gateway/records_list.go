package gateway

import (
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listRecords(w http.ResponseWriter, r *http.Request) error {
	query, err := readRecordQuery(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	records, err := g.backend.Records(ctx, query)
	if err != nil {
		return err
	}
	answer := api.Records{Resource: string(query.Resource), Records: make([]api.RecordInfo, len(records))}
	for i, record := range records {
		answer.Records[i] = api.RecordInfo{
			Key: string(record.Key), Version: record.Version, FencingToken: record.Token, Sequence: record.Sequence,
			ContentType: record.ContentType, Size: record.Size, UpdatedAt: api.Time{Time: record.UpdatedAt},
		}
	}
	answer.NextCursor = nextCursor(len(records), query.Limit, func() string {
		last := records[len(records)-1]
		if query.ByTime {
			return fmt.Sprint(last.UpdatedAt.UnixMicro(), " ", last.Key)
		}
		return string(last.Key)
	})
	return answerJSON(w, http.StatusOK, answer)
}

func readRecordQuery(r *http.Request) (query store.RecordQuery, err error) {
	resource, err := pathName(r, "resource")
	if err != nil {
		return query, err
	}
	page, err := readPage(r, "prefix", "sort")
	if err != nil {
		return query, err
	}
	query = store.RecordQuery{Resource: resource, Prefix: page.prefix, After: page.after, Limit: page.limit}
	if query.ByTime, err = page.choice("sort", "key", "updated_at"); err == nil && query.ByTime {
		query.AfterMicros, query.After, err = page.numbered()
	}
	return query, err
}
