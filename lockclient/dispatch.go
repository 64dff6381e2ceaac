package lockclient

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/fencegate/fencegate/gateway/api"
)

// dispatch observes whether a request can have left this process: it can't have if the transport asked for a connection
// and never got one. A transport that does not report to httptrace has proven nothing, and so counts as having sent.
type dispatch struct {
	asked, connected atomic.Bool
}

func (d *dispatch) observe(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { d.connected.Store(true) },
	})
}

// outcome is that of a request to which no whole answer came.
func (d *dispatch) outcome(changes bool) api.Outcome {
	if !changes || (d.asked.Load() && !d.connected.Load()) {
		return api.OutcomeNotApplied
	}
	return api.OutcomeUnknown
}
