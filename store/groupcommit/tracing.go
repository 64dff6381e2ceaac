package groupcommit

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// batchLinksMax is how many of its writes the span of a batch links to.
const batchLinksMax = 64

var laneNames = [laneCount]string{laneQuick: "quick", laneLarge: "large", laneLockWait: "lock_wait"}

// beginSpan begins the span of a batch with traced writes. It belongs to the trace of the first of them, so that one
// trace leads from the request to the statement. It links to the others, and they link to it.
func (b *batch) beginSpan(tracer trace.Tracer) {
	if tracer == nil {
		return
	}
	var first trace.Span
	var links []trace.Link
	for _, p := range b.rows {
		if p.span == nil || len(links) == batchLinksMax {
			continue
		}
		if first == nil {
			first = p.span
		}
		links = append(links, trace.Link{SpanContext: p.span.SpanContext()})
	}
	if first == nil {
		return
	}
	b.ctx, b.span = tracer.Start(trace.ContextWithSpan(b.ctx, first), "write batch",
		trace.WithLinks(links...), trace.WithAttributes(
			attribute.Int("fencegate.batch.writes", len(b.rows)), attribute.Int64("fencegate.batch.bytes", b.bytes),
			attribute.String("fencegate.batch.lane", laneNames[b.lane.kind])))
	link := trace.Link{SpanContext: b.span.SpanContext()}
	for _, p := range b.rows {
		if p.span != nil && p.span != first {
			p.span.AddLink(link)
		}
	}
}

// endSpan ends the span, after the verdicts were delivered.
func (b *batch) endSpan() {
	if b.span == nil {
		return
	}
	if busy := len(b.busy); busy > 0 {
		b.span.SetAttributes(attribute.Int("fencegate.batch.busy", busy))
	}
	b.span.End()
}
