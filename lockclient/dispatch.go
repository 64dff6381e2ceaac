package lockclient

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/fencegate/fencegate/gateway/api"
)

// dispatch observes whether a request can have left this process. It can't have if the transport asked for a connection
// and got none. A transport that does not report to httptrace proves nothing, so its requests count as sent.
type dispatch struct {
	asked, connected atomic.Bool
}

func (d *dispatch) observe(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { d.connected.Store(true) },
	})
}

// outcome returns the outcome of a request without a whole answer.
func (d *dispatch) outcome(changes bool) api.Outcome {
	if !changes || (d.asked.Load() && !d.connected.Load()) {
		return api.OutcomeNotApplied
	}
	return api.OutcomeUnknown
}
