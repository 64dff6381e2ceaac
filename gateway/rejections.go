package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// judged counts the verdict on a write, and notes a rejection for the record.
func (g *Gateway) judged(r *http.Request, door string, err error) {
	g.metrics.write(door, err)
	var rejected *store.RejectedError
	if errors.As(err, &rejected) {
		g.recorder.Record(rejected, door, address(r))
	}
}

func (g *Gateway) listRejections(w http.ResponseWriter, r *http.Request) error {
	page, err := readPage(r, "resource", "code", "since")
	if err != nil {
		return err
	}
	filter := store.RejectionQuery{Verdict: store.Verdict(page.values.Get("code")), Limit: page.limit}
	if text := page.values.Get("resource"); text != "" {
		if filter.Resource, err = parseName("resource", text); err != nil {
			return err
		}
	}
	if text := page.values.Get("since"); text != "" {
		if filter.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return invalid("since must be a time like 2026-01-02T15:04:05Z.")
		}
	}
	if page.after != "" {
		if filter.Before, err = strconv.ParseInt(page.after, 10, 64); err != nil {
			return invalid("cursor must be a next_cursor that the gateway gave.")
		}
	}
	ctx, cancel := g.work(r)
	defer cancel()
	rejections, err := g.backend.Rejections(ctx, filter)
	if err != nil {
		return err
	}
	answer := api.Rejections{Rejections: make([]api.Rejection, len(rejections))}
	for i, rejection := range rejections {
		answer.Rejections[i] = rejectionAnswer(rejection)
	}
	answer.NextCursor = nextCursor(len(rejections), page.limit, func() string {
		return strconv.FormatInt(rejections[len(rejections)-1].ID, 10)
	})
	return answerJSON(w, http.StatusOK, answer)
}

func rejectionAnswer(rejection store.Rejection) api.Rejection {
	answer := api.Rejection{
		ID: rejection.ID, Resource: string(rejection.Resource), Key: string(rejection.Key),
		Code: api.Code(rejection.Verdict), Reason: rejection.Reason, Sequence: rejection.Sequence,
		GrantedToken: rejection.GrantedToken, LastToken: rejection.LastToken, LastSequence: rejection.LastSequence,
		OwnerID: rejection.OwnerID, Door: rejection.Door, Address: rejection.Address, Count: rejection.Count,
		FirstAt: api.Time{Time: rejection.FirstAt}, LastAt: api.Time{Time: rejection.LastAt},
	}
	if rejection.Token != 0 {
		answer.Token = &rejection.Token
	}
	if rejection.Late != nil {
		late := rejection.Late.Milliseconds()
		answer.LateMS = &late
	}
	return answer
}
