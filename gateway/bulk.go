package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// bulkStreamsMax bounds the streams of writes that are open at the same time; with bulkLinesMax and bulkBytesMax it bounds their memory.
	bulkStreamsMax = 512
	// bulkLinesMax and bulkBytesMax bound what of one stream is read and not decided; a single line may be larger.
	bulkLinesMax = 1024
	bulkBytesMax = 8 << 20
	// bulkLinger is how long a client may take to end a body that is not read any more. Were the connection closed before that, its end could
	// overtake the last verdicts.
	bulkLinger = 2 * time.Second
	// bulkPauseMin and bulkPauseMax are between two tries of a line for which the store has no room.
	bulkPauseMin = time.Millisecond
	bulkPauseMax = 50 * time.Millisecond
)

// endGone is the end of a stream whose client does not take its verdicts: nobody is told.
const endGone = "gone"

// bulkStream is one POST /v1/writes: a reader, which submits lines as they come, and the handler itself, which answers with the verdicts in
// the order of the lines. Between the two stands a window of bounded size; when it is full, nothing is read.
type bulkStream struct {
	gateway    *Gateway
	request    *http.Request
	writer     http.ResponseWriter
	controller *http.ResponseController
	window     *bulkWindow

	// ctx ends never: what was begun is finished, whether the client is there or not. The store gives every write its verdict in time.
	ctx context.Context

	spans    lineSpans // of the reader
	deadline deadlines
	failed   atomic.Bool // a defect was logged; one in a stream is enough
	refusals streamRefusals
}

// bulk takes any number of independent writes, a line each, and answers with a verdict a line.
func (g *Gateway) bulk(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != api.BulkContentType {
		return problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest,
			"The body must be a JSON document a line, with Content-Type: "+api.BulkContentType+".")
	}
	if g.draining.Err() != nil {
		return busy("The gateway is ending, and nothing was taken. Send the writes to another gateway.")
	}
	defer g.bulkStreams.Add(-1)
	if g.bulkStreams.Add(1) > bulkStreamsMax {
		return busy("This gateway has as many streams of writes open as it may, " + strconv.Itoa(bulkStreamsMax) + ". Try again, or another gateway.")
	}
	s := &bulkStream{
		gateway: g, request: r, writer: w, controller: http.NewResponseController(w), window: newBulkWindow(),
		ctx: context.WithoutCancel(r.Context()),
	}
	s.deadline.controller = s.controller
	defer context.AfterFunc(g.draining, func() { s.window.stop(api.BulkShutdown) })()
	return s.serve()
}

// serve answers until the input is at its end and every line that was taken is decided.
func (s *bulkStream) serve() error {
	// Without this a server reads an HTTP/1.1 body to its end before it answers. HTTP/2 does so by itself.
	_ = s.controller.EnableFullDuplex()
	noteBodyRead(s.writer)
	header := s.writer.Header()
	header.Set("Content-Type", api.BulkContentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would keep the verdicts until it has enough of them
	s.writer.WriteHeader(http.StatusOK)

	var reading sync.WaitGroup
	// Nothing of the request may be touched when the handler has returned, or has panicked.
	defer reading.Wait()
	defer s.deadline.end(0)
	reading.Go(s.read)
	end := s.answer()
	switch {
	case end == endGone:
		return fmt.Errorf("%w: it does not take its verdicts", errClientGone)
	case end != api.BulkComplete && s.request.ProtoMajor == 1:
		s.deadline.end(bulkLinger)
		reading.Wait()
	}
	return nil
}

// read takes lines until the input or the stream ends, and drops the rest of the input.
func (s *bulkStream) read() {
	defer func() {
		if cause := recover(); cause != nil {
			s.gateway.config.Logger.ErrorContext(s.request.Context(), "panic", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
			s.window.stop(api.BulkFailed)
		}
	}()
	input := newBulkInput(s.request.Body, s.gateway.config, &s.deadline)
	input.share = &bodyShare{budget: &s.gateway.bodies, cut: func() { s.deadline.end(0) }}
	defer input.share.free()
	s.window.stop(s.take(input))
	input.share.free()
	_, _ = io.Copy(io.Discard, s.request.Body)
}

// take submits the lines, and returns why there are no more.
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
		}
		line := s.window.take(input.number, len(text), &s.deadline)
		if line == nil {
			return api.BulkComplete // the stream was stopped, for a reason that is noted
		}
		if err == nil {
			err = line.parse(text, s.gateway.config.BodyBytesMax)
		} else {
			err = input.tooLong()
		}
		if err != nil {
			line.refuse(err)
			continue
		}
		s.submit(line)
	}
}

// pause stops reading for a while where line after line is refused for good.
func (s *bulkStream) pause() {
	pause := s.refusals.pause(s.gateway.refusals)
	if pause == 0 {
		return
	}
	s.deadline.disarm() // it is not the client who is late
	s.gateway.refusals.metrics.begin()
	defer s.gateway.refusals.metrics.end()
	s.window.sleep(pause)
}

// submit has a line decided. Where too many writes wait already, it waits with it, and takes no other meanwhile: writes to one resource
// are decided in the order of their lines.
func (s *bulkStream) submit(line *bulkLine) {
	began, pause := time.Now(), bulkPauseMin
	line.taken = began
	for {
		err := s.window.submit(line, func() { s.gateway.backend.Submit(s.spans.context(s.ctx), line.write, line.decided) })
		if err == nil {
			return
		}
		s.deadline.disarm() // it is not the client who is late
		if !errors.Is(err, store.ErrOverloaded) || time.Since(began) > s.gateway.config.RequestTimeout || !s.window.sleep(jittered(pause)) {
			s.window.settle(line, store.Result{}, err)
			return
		}
		pause = min(2*pause, bulkPauseMax)
	}
}

// judge counts a verdict of the store, which is given now, and logs what a client can't help.
func (s *bulkStream) judge(line *bulkLine, now time.Time) {
	if line.malformed {
		return
	}
	s.gateway.judged(s.request, sourceBulk, line.err)
	s.refusals.judge(line.err)
	level, what := slog.LevelError, "request failed"
	switch {
	case line.err == nil:
		s.gateway.metrics.writeTimes.bulk.Observe(now.Sub(line.taken).Seconds())
		return
	case errors.Is(line.err, store.ErrOverloaded): // each of which is counted
		return
	case errors.Is(line.err, store.ErrUnavailable):
		level, what = slog.LevelWarn, "database unavailable"
	case problemOf(line.err).Code != api.CodeInternal:
		return
	}
	if s.failed.Swap(true) {
		return
	}
	s.gateway.config.Logger.Log(s.request.Context(), level, what,
		"method", s.request.Method, "path", s.request.URL.Path, "line", line.number, "error", line.err)
}
