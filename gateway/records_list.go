package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listRecords() handler {
	return listing(g, collection[store.RecordQuery, store.Record, api.RecordInfo]{
		parameters: []string{"prefix", "sort"},
		query:      readRecordQuery,
		rows:       Backend.Records,
		item:       recordInfo,
		cursor: func(query store.RecordQuery, last store.Record) string {
			if query.ByTime {
				return fmt.Sprint(last.UpdatedAt.UnixMicro(), " ", last.Key)
			}
			return string(last.Key)
		},
		answer: func(_ context.Context, query store.RecordQuery, records []api.RecordInfo, next string) (any, error) {
			return api.Records{Resource: string(query.Resource), Records: records, NextCursor: next}, nil
		},
	})
}

func readRecordQuery(r *http.Request, page page) (query store.RecordQuery, err error) {
	query = store.RecordQuery{Prefix: page.prefix, After: page.after, Limit: page.limit}
	if query.Resource, err = resourceName(r); err != nil {
		return query, err
	}
	if query.ByTime, err = page.choice("sort", "key", "updated_at"); err == nil && query.ByTime {
		query.AfterMicros, query.After, err = page.numbered()
	}
	return query, err
}

func recordInfo(record store.Record) api.RecordInfo {
	return api.RecordInfo{
		Key: string(record.Key), Version: record.Version, FencingToken: record.Token, Sequence: record.Sequence,
		ContentType: record.ContentType, Size: record.Size, UpdatedAt: api.Time{Time: record.UpdatedAt},
	}
}
