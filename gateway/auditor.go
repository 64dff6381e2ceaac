package gateway

import (
	"context"
	"fmt"
	"time"
)

const (
	// auditEvery is the time between two writings of refusals.
	auditEvery = time.Minute
	// auditTimeout bounds each.
	auditTimeout = 5 * time.Second
)

// RunAuditor writes the accesses that this gateway refused to the audit log every minute until ctx ends, and then once
// more, and logs the head of the audit log when it has changed: the log is kept elsewhere, so the head is evidence. It
// passes failures to onError.
func (g *Gateway) RunAuditor(ctx context.Context, onError func(error)) {
	ticker := time.NewTicker(auditEvery)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ended = true
		}
		if err := g.audit(context.WithoutCancel(ctx)); err != nil {
			onError(err)
		}
	}
}

// audit does the work of RunAuditor once.
func (g *Gateway) audit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if refused := g.Refusals.Take(); len(refused) > 0 {
		if err := g.service.NoteRefusals(ctx, refused); err != nil {
			g.Refusals.Lose(refused)
			return err
		}
	}
	seal, hash, err := g.service.AuditHead(ctx)
	if head := fmt.Sprintf("%d:%s", seal, hash); err == nil && seal > 0 && head != g.auditHead {
		g.auditHead = head
		g.Logger.InfoContext(ctx, "audit log sealed", "head", head)
	}
	return err
}
