package writes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// BulkStreamsMax bounds the open bulk streams; with bulkLinesMax and bulkBytesMax it bounds their memory.
	BulkStreamsMax = 512
	// bulkLinesMax and bulkBytesMax bound the lines of one stream that were read and not decided. A single line may be
	// larger.
	bulkLinesMax = 1024
	bulkBytesMax = 8 << 20
	// bulkLinger is how long a client may take to end a body that is not read any more. If the connection were closed
	// at once, its end could overtake the last verdicts.
	bulkLinger = 2 * time.Second
	// bulkAcceptedMax is how long lines that arrived together are taken without another check of the credential.
	bulkAcceptedMax = time.Second
	// bulkPauseMin and bulkPauseMax bound the pause between two tries of a line for which the store has no room.
	bulkPauseMin = time.Millisecond
	bulkPauseMax = 50 * time.Millisecond
)

// endGone is the end of a stream whose client does not take its verdicts. It is never sent.
const endGone = "gone"

// bulkStream is one POST /v1/writes. A reader submits lines as they arrive, and the handler itself answers the verdicts
// in the order of the lines. A window of bounded size is between the two; while it is full, nothing is read.
type bulkStream struct {
	endpoints  *Endpoints
	request    *http.Request
	writer     *endpoint.Answer
	controller *http.ResponseController
	window     *bulkWindow

	// ctx never ends: lines that were taken are finished even if the client leaves. The store bounds the time of each.
	ctx context.Context
	// staying ends when the gateway drains.
	staying context.Context

	spans    lineSpans // used by the reader
	accepted time.Time // when the credential was checked; used by the reader
	deadline bulkDeadline
	logged   bool // one failure in a stream is logged; used by the writer
	refusals endpoint.StreamRefusals
}

// bulk takes any number of independent writes, one a line, and answers a verdict for each line.
func (e *Endpoints) bulk(w *endpoint.Answer, r *http.Request) error {
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	if err := endpoint.CheckContentType(r, api.BulkContentType, "a JSON document a line"); err != nil {
		return err
	}
	staying := e.Staying()
	if staying.Err() != nil {
		return endpoint.Busy("The gateway is draining, and took no line. Send the writes to another gateway.")
	}
	defer e.BulkStreams.Add(-1)
	if e.BulkStreams.Add(1) > BulkStreamsMax {
		return endpoint.Busy("This gateway has as many bulk streams open as it may, " + strconv.Itoa(BulkStreamsMax) +
			". Try again, or another gateway.")
	}
	defer w.Caller.BulkStreams.Leave()
	if err := e.Enter(&w.Caller.BulkStreams, metrics.LimitStreams,
		"as many bulk streams open as one caller may, "+strconv.Itoa(CallerBulkStreamsMax)); err != nil {
		return err
	}
	s := &bulkStream{
		endpoints: e, request: r, writer: w, controller: http.NewResponseController(w),
		window: newBulkWindow(), ctx: context.WithoutCancel(r.Context()), staying: staying,
	}
	s.deadline.controller = s.controller
	defer context.AfterFunc(staying, func() { s.window.stop(api.BulkShutdown) })()
	return s.serve()
}

// serve answers until the input has ended and every line that was taken has its verdict.
func (s *bulkStream) serve() error {
	// Otherwise the server reads an HTTP/1.1 body to its end before it answers. HTTP/2 is full duplex by itself.
	_ = s.controller.EnableFullDuplex()
	s.writer.BodyLeft = false
	header := s.writer.Header()
	header.Set("Content-Type", api.BulkContentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would buffer the verdicts
	s.writer.WriteHeader(http.StatusOK)

	var reading sync.WaitGroup
	// The request must not be used after the handler has returned or panicked.
	defer reading.Wait()
	defer s.deadline.end(0)
	reading.Go(s.read)
	end := s.answer()
	switch {
	case end == endGone:
		return fmt.Errorf("%w: it does not read its verdicts", endpoint.ErrClientGone)
	case end != api.BulkComplete && s.request.ProtoMajor == 1:
		s.deadline.end(bulkLinger)
		reading.Wait()
		s.closeConnection()
	}
	return nil
}

// closeConnection ends the answer, and closes an HTTP/1.1 connection whose client has not sent the whole body: the
// server would take the rest of it for another request.
func (s *bulkStream) closeConnection() {
	if s.deadline.wholeBody() {
		return
	}
	_ = s.controller.Flush()
	connection, buffered, err := s.controller.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // closes it, without the last chunk
	}
	if s.request.ProtoAtLeast(1, 1) {
		_, _ = buffered.WriteString("0\r\n\r\n") // the last chunk
	}
	_ = buffered.Flush()
	_ = connection.Close()
}

// read takes lines until the input or the stream ends, and drops the rest of the input.
func (s *bulkStream) read() {
	defer func() {
		if cause := recover(); cause != nil {
			s.endpoints.LogPanic(s.request, cause)
			s.window.stop(api.BulkFailed)
		}
	}()
	input := newBulkInput(s.request.Body, &s.endpoints.Config, &s.deadline)
	input.arrival = func() { s.accepted = time.Time{} }
	input.share = &endpoint.BodyShare{
		Budget: &s.endpoints.Bodies, Caller: &s.writer.Caller.Bodies, Cut: func() { s.deadline.end(0) },
	}
	defer input.share.Free()
	s.window.stop(s.take(input))
	input.share.Free()
	if _, err := io.Copy(io.Discard, s.request.Body); err == nil {
		s.deadline.bodyEnded()
	}
}

// take submits the lines, and returns why it stopped.
func (s *bulkStream) take(input *bulkInput) string {
	for {
		s.pause()
		text, err := input.next()
		switch {
		case errors.Is(err, io.EOF):
			return api.BulkComplete
		case errors.Is(err, errBodyTimeout):
			return api.BulkIdle
		case err != nil && !errors.Is(err, errLineTooLong):
			return api.BulkBroken
		case s.staying.Err() != nil: // the window may not have been stopped yet
			return api.BulkShutdown
		}
		s.throttle()
		line := s.window.take(input.number, len(text), &s.deadline)
		if line == nil {
			return api.BulkComplete // the stream was stopped before, for a reason that counts
		}
		if err == nil {
			err = line.parse(text, s.endpoints.BodyBytesMax)
		} else {
			err = input.tooLong()
		}
		if err == nil {
			err = s.judge(line)
		}
		if err != nil {
			line.refuse(err)
			continue
		}
		s.submit(line)
	}
}

// judge returns the refusal of a line that the principal may not write, or this gateway does not serve. The credential
// may have ended meanwhile: judge checks it again for lines that arrived later, and every second.
func (s *bulkStream) judge(line *bulkLine) error {
	if now := time.Now(); now.Sub(s.accepted) >= bulkAcceptedMax {
		if err := s.endpoints.StillAccepted(s.request); err != nil {
			return err
		}
		s.accepted = now
	}
	if line.transaction != nil {
		err := mayTransact(s.writer.Principal, line.transaction.transaction)
		s.endpoints.NoteForbidden(s.writer, s.request, "", endpoint.CodeOf(err))
		return err
	}
	err := mayWrite(s.writer.Principal, line.write.Resource)
	s.endpoints.NoteForbidden(s.writer, s.request, line.write.Resource, endpoint.CodeOf(err))
	return err
}

// pause stops reading for a while if line after line is refused for good.
func (s *bulkStream) pause() {
	pause := s.refusals.Pause(s.endpoints.RefusalDelays)
	if pause == 0 {
		return
	}
	s.deadline.disarm() // the client is not late
	s.endpoints.Metrics.RefusalDelays.Begin()
	defer s.endpoints.Metrics.RefusalDelays.End()
	s.window.sleep(pause)
}

// throttle waits until the caller may send another request: each line counts as one.
func (s *bulkStream) throttle() {
	for wait := s.writer.Caller.Take(); wait > 0; wait = s.writer.Caller.Take() {
		s.deadline.disarm() // the client is not late
		if !s.window.sleep(wait) {
			return
		}
	}
}

// submit submits a line to the store. While too many writes wait, it retries, and takes no other line: the order of
// lines is the order of the writes to a resource.
func (s *bulkStream) submit(line *bulkLine) {
	began, pause := time.Now(), bulkPauseMin
	line.taken = began
	enter := func() { s.endpoints.service.Submit(s.spans.context(s.ctx), line.write, line.decided) }
	if line.transaction != nil {
		s.deadline.disarm() // the client is not late, however long this takes
		s.window.awaitDecided()
		enter = func() { s.transact(line) }
	}
	for {
		err := s.window.submit(line, enter)
		if err == nil {
			return
		}
		s.deadline.disarm() // the client is not late
		if !errors.Is(err, store.ErrOverloaded) || time.Since(began) > s.endpoints.RequestTimeout ||
			!s.window.sleep(endpoint.Jittered(pause)) {
			s.window.settle(line, store.Result{}, err)
			return
		}
		pause = min(2*pause, bulkPauseMax)
	}
}

// count counts a verdict of the store, and logs failures that are not the client's.
func (s *bulkStream) count(line *bulkLine, now time.Time) {
	if line.malformed {
		return
	}
	s.endpoints.Count(s.writer, s.request, metrics.SourceBulk, now.Sub(line.taken), line.err)
	s.refusals.Count(line.err)
	if s.logged {
		return
	}
	if level, message := endpoint.Failure(line.err, endpoint.CodeOf(line.err)); message != "" {
		s.logged = true
		s.endpoints.Logger.Log(s.request.Context(), level, message,
			"method", s.request.Method, "path", s.request.URL.Path, "line", line.number, "error", line.err)
	}
}
