package lockclient

import (
	"context"
	"io"

	"github.com/fencegate/fencegate/gateway/api"
)

// Writes sends lines, each an [api.BulkWrite] and none empty, as one POST /v1/writes. While it sends, it calls
// verdict with the verdict on each line, in order; Line counts from 1. It returns the last line of the answer, whose
// NextLine is counted alike.
//
// It asks the gateways in turn until one accepts the stream. Lines are read from then on, as fast as the gateway takes
// them, and sent once. It returns an error if no gateway accepts the stream, if verdict returns one, or, with
// [ErrOutcomeUnknown], if the stream breaks: lines without a verdict may have been applied. Numbered lines can be sent
// again; a [BulkWriter] does that. Only ctx limits its time. A Read of lines that blocks may continue after Writes has
// returned: end it.
func (a *API) Writes(ctx context.Context, lines io.Reader, verdict func(api.BulkVerdict) error) (api.BulkEnd, error) {
	s, err := a.client.openBulk(ctx, "writes", lines.Read, nil)
	if err != nil {
		return api.BulkEnd{}, err
	}
	defer s.end()
	s.start()
	return s.follow(verdict)
}
