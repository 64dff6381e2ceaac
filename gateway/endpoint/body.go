package endpoint

import (
	"bytes"
	"cmp"
	"container/list"
	"crypto/md5" //nolint:gosec // of Content-MD5
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
)

// SetBodyDeadline bounds the time in which the body of a request arrives. It holds for the handler, and for the server,
// which drops the rest of a body that the handler refused.
func (s *Server) SetBodyDeadline(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// Fails where the connection is gone, which the first read will show, and in tests without a connection. After
		// the body, the server waits for the connection's end without a deadline, so a request may take longer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.BodyTimeout))
	}
}

const bodyBytesFlag = "--body-bytes-max"

// BodyLimit is how long a body may be, and the flag that sets it.
type BodyLimit struct {
	Bytes int64
	Flag  string
}

// ReadBody reads a whole body, within the limits of size (--body-bytes-max) and time (see SetBodyDeadline).
func (s *Server) ReadBody(w *Answer, r *http.Request) ([]byte, error) {
	return s.ReadBodyWithin(w, r, BodyLimit{s.BodyBytesMax, bodyBytesFlag})
}

// ReadBodyWithin is ReadBody with another limit of size.
func (s *Server) ReadBodyWithin(w *Answer, r *http.Request, limit BodyLimit) ([]byte, error) {
	body, err := s.readAll(w, r, limit.Bytes)
	if err == nil {
		w.BodyLeft = false
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, limit.Exceeded("The body")
	}
	if refusal := s.refusedByBudget(err); refusal != nil {
		return nil, refusal
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, Problem(http.StatusRequestTimeout, api.CodeInvalidRequest,
			"The body did not arrive within "+s.BodyTimeout.String()+" (--body-timeout).")
	}
	return nil, Invalid("The body broke off: %v.", err)
}

// refusedByBudget returns the answer to an error of BodyShare.Grow; nil for other errors.
func (s *Server) refusedByBudget(err error) error {
	switch {
	case errors.Is(err, errBodiesFull):
		return Busy("This gateway holds as many bytes of request bodies as it may (--bodies-bytes-max). " +
			"Nothing was changed: try again a little later, or another gateway.")
	case errors.Is(err, errBodiesOfCallerFull):
		return s.RateLimited(metrics.LimitBodies, "Your request bodies hold as many bytes of this gateway as those of "+
			"one caller may, half of --bodies-bytes-max.", slotRetry)
	}
	return nil
}

// Hold counts the bytes of an answer that may be long as those of a body. It returns the answer to a request for which
// there is no room.
func (s *Server) Hold(w *Answer, r *http.Request, bytes int64) error {
	if bytes <= BodyFreeBytes {
		return nil
	}
	s.share(w, r)
	err := s.refusedByBudget(w.Share.Grow(int(bytes)))
	w.Share.Arrived()
	return err
}

// Exceeded is the answer to a body, or part of one, that is too long.
func (l BodyLimit) Exceeded(what string) *api.Problem {
	return Problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
		what+" is over the limit of "+strconv.FormatInt(l.Bytes, 10)+" bytes ("+l.Flag+").")
}

// OverLimit is the answer to a value or a transaction that is longer than --body-bytes-max.
func OverLimit(what string, limit int64) *api.Problem {
	return BodyLimit{limit, bodyBytesFlag}.Exceeded(what)
}

// readAll reads a short body of known length into a buffer of that size. Longer bodies count against the budget.
func (s *Server) readAll(w *Answer, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > min(BodyFreeBytes, limit) {
		return s.readCounted(w, r, limit)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// CheckContentType refuses a body of another media type, before it is read.
func CheckContentType(r *http.Request, mediaType, must string) error {
	header := r.Header.Get("Content-Type")
	if header == mediaType {
		return nil
	}
	given, _, err := mime.ParseMediaType(header)
	if err != nil || given != mediaType {
		return Problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest,
			"The body must be "+must+", with Content-Type: "+mediaType+".")
	}
	return nil
}

var strictly = json.RejectUnknownMembers(true)

// readJSON reads a JSON body into document. It refuses unknown, misspelt and repeated fields, and parameters in the
// URL: an option must not be ignored. A body for a document without fields may be absent.
func (s *Server) readJSON(w *Answer, r *http.Request, document any) error {
	if _, err := Query(r); err != nil {
		return err
	}
	if _, none := document.(*struct{}); none && r.ContentLength == 0 {
		return nil
	}
	if err := CheckContentType(r, "application/json", "JSON"); err != nil {
		return err
	}
	body, err := s.ReadBody(w, r)
	if err != nil {
		return err
	}
	switch text := bytes.Trim(body, " \t\r\n"); {
	case len(text) == 0:
		return Invalid("The body is empty; it must be a JSON object.")
	case string(text) == "null": // would decode as an object without fields
		return Invalid("The body must be a JSON object.")
	}
	if err := json.Unmarshal(body, document, strictly); err != nil {
		return InvalidJSON(err)
	}
	return nil
}

// InvalidJSON names the field that is wrong, and says why.
func InvalidJSON(err error) *api.Problem {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && syntactic.JSONPointer != "" {
			field := fieldName(syntactic.JSONPointer)
			if errors.Is(err, jsontext.ErrDuplicateName) {
				return Invalid("The field %s is there twice.", field)
			}
			return Invalid("The body is not JSON: at %s, byte %d: %v.", field, syntactic.ByteOffset, syntactic.Err)
		}
		return Invalid("The body is not JSON: %s.", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	field := fieldName(semantic.JSONPointer)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return Invalid("There is no field %s; is it misspelt?", field)
	case strings.HasSuffix(field, "fencing_token"), strings.HasSuffix(field, "sequence"):
		return InvalidToken(field + ": a fencing token is a JSON integer from 1 to 2^53-1, a sequence one from 0.")
	case field == "":
		return Invalid("The body must be a JSON object.")
	}
	expected := "another type"
	if semantic.GoType != nil {
		expected = jsonTypes[strings.TrimLeft(semantic.GoType.String(), "*")]
	}
	return Invalid("The field %s has the wrong type or is out of range: it must be %s.", field, expected)
}

// jsonTypes are the types of fields as clients know them.
var jsonTypes = map[string]string{
	"string": "a string", "int64": "an integer", "bool": "true or false", "json.RawMessage": "a JSON value",
	"[]api.WriteToken": "an array", "[]api.Op": "an array", "api.WriteToken": "an object", "api.Op": "an object",
	"[]string": "an array of texts",
}

// fieldName writes a JSON pointer as clients write paths: fences[0].resource.
func fieldName(pointer jsontext.Pointer) string {
	var name strings.Builder
	for token := range pointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			name.WriteString("[" + token + "]")
			continue
		}
		if name.Len() > 0 {
			name.WriteByte('.')
		}
		name.WriteString(token)
	}
	return Clip(name.String())
}

// CheckMD5 compares a body with the header Content-MD5 (RFC 1864), if there is one.
func CheckMD5(r *http.Request, body []byte) error {
	given := r.Header.Get("Content-Md5")
	if given == "" {
		return nil
	}
	sum := md5.Sum(body) //nolint:gosec // the client chose it, against accidents
	if given != base64.StdEncoding.EncodeToString(sum[:]) {
		return Invalid("The body differs from its Content-MD5: it was changed on its way.")
	}
	return nil
}

const (
	// BodyFreeBytes of each body do not count: a connection itself costs as much. Every call on a lease fits in, so large
	// bodies of others do not block it.
	BodyFreeBytes = 8 << 10
	// bodyStalled is how long an arriving body may go without growing before it is dropped for another.
	bodyStalled = time.Second
)

var (
	errBodiesFull         = errors.New("the bodies of requests hold too many bytes")
	errBodiesOfCallerFull = errors.New("this caller's request bodies exceed its share of memory")
)

// BodyBudget bounds the memory for the bodies of all requests, from their first bytes to their answers, or to a wait
// before the answer. One caller may use half of it. When either is used up, it drops stalled bodies. Otherwise their
// clients could hold the memory for --body-timeout, while honest clients are refused.
type BodyBudget struct {
	max     int64
	stalled time.Duration

	mu  sync.Mutex // also guards the Bodies of callers
	all limits.Bodies
}

// BodyShare is the share of one body in the budget. Its methods may be called on nil, for a body that does not count.
type BodyShare struct {
	Budget *BodyBudget
	Caller *limits.Bodies
	Cut    func() // ends the current read of the body

	// Guarded by budget.mu.
	bytes    int64
	grownAt  time.Time
	inAll    *list.Element // of the arriving bodies; nil: the body is not arriving
	inCaller *list.Element // of those of the caller
	gone     bool          // it was dropped or freed
	refusal  error         // why it was dropped
}

// Grow takes more bytes for an arriving body. It returns errBodiesFull or errBodiesOfCallerFull if there is no room, or
// if the body was dropped. A single body of a caller may use more than half of the budget: any body fits in alone.
func (s *BodyShare) Grow(bytes int) error {
	if s == nil {
		return nil
	}
	b, more := s.Budget, int64(bytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	for !s.gone && s.Caller.Bytes > s.bytes && s.Caller.Bytes+more > b.max/2 {
		if !b.dropStalledLocked(&s.Caller.Arriving, s, errBodiesOfCallerFull) {
			return errBodiesOfCallerFull
		}
	}
	for !s.gone && b.all.Bytes+more > b.max {
		if !b.dropStalledLocked(&b.all.Arriving, s, errBodiesFull) {
			return errBodiesFull
		}
	}
	if s.gone {
		return s.refusal
	}
	s.addLocked(more)
	s.stopArrivingLocked()
	s.grownAt = time.Now()
	s.inAll, s.inCaller = b.all.Arriving.PushBack(s), s.Caller.Arriving.PushBack(s)
	return nil
}

// dropStalledLocked drops the body that has not grown for the longest time, and reports whether it has stalled. A body
// does not give way to itself.
func (b *BodyBudget) dropStalledLocked(arriving *list.List, to *BodyShare, refusal error) bool {
	oldest := arriving.Front()
	if oldest == nil {
		return false
	}
	victim := oldest.Value.(*BodyShare)
	if victim == to || time.Since(victim.grownAt) < b.stalled {
		return false
	}
	victim.refusal = refusal
	victim.freeLocked()
	victim.Cut()
	return true
}

// locked calls change while the budget is locked.
func (s *BodyShare) locked(change func()) {
	if s == nil {
		return
	}
	s.Budget.mu.Lock()
	defer s.Budget.mu.Unlock()
	change()
}

// Arrived notes that the gateway works on the bytes that it has read: the budget keeps them, and does not drop them.
func (s *BodyShare) Arrived() { s.locked(s.stopArrivingLocked) }

// Shrink frees a part.
func (s *BodyShare) Shrink(bytes int) {
	s.locked(func() {
		if !s.gone {
			s.addLocked(-int64(bytes))
		}
	})
}

// Free frees the whole share. Neither it nor any later call calls Cut.
func (s *BodyShare) Free() { s.locked(s.freeLocked) }

// dropped returns why the body was dropped for another; nil: it was not.
func (s *BodyShare) dropped() (refusal error) {
	s.locked(func() { refusal = s.refusal })
	return refusal
}

func (s *BodyShare) freeLocked() {
	s.stopArrivingLocked()
	s.addLocked(-s.bytes)
	s.gone = true
}

func (s *BodyShare) addLocked(bytes int64) {
	s.bytes += bytes
	s.Caller.Bytes += bytes
	s.Budget.all.Bytes += bytes
}

func (s *BodyShare) stopArrivingLocked() {
	if s.inAll != nil {
		s.Budget.all.Arriving.Remove(s.inAll)
		s.Caller.Arriving.Remove(s.inCaller)
		s.inAll, s.inCaller = nil, nil
	}
}

// share gives the answer a share of the budget.
func (s *Server) share(w *Answer, r *http.Request) *BodyShare {
	if w.Caller == nil {
		w.Caller = s.limits.OfAddress(s.Address(r))
	}
	controller := http.NewResponseController(w)
	w.Share = &BodyShare{Budget: &s.Bodies, Caller: &w.Caller.Bodies, Cut: func() { _ = controller.SetReadDeadline(time.Now()) }}
	return w.Share
}

// readCounted reads a body that may be long. Its buffer grows as the body arrives, since a client may announce a long
// body and send nothing. It returns an error of Grow if there is no room, or if the body was dropped for another. On a
// public route, the body counts for its address.
func (s *Server) readCounted(w *Answer, r *http.Request, limit int64) ([]byte, error) {
	share := s.share(w, r)
	most := limit + 1
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength+1) // the last byte stays free and shows the end
	}
	input := http.MaxBytesReader(w, r.Body, limit)
	body := make([]byte, 0, min(BodyFreeBytes, most))
	for {
		if len(body) == cap(body) {
			room := int(min(2*int64(cap(body)), most))
			if err := share.Grow(room - cap(body)); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := input.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			share.Arrived()
			return body, nil
		}
		if err != nil {
			return nil, cmp.Or(share.dropped(), err)
		}
	}
}

// Bytes returns how many bytes of bodies are held.
func (b *BodyBudget) Bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Bytes
}

// SetStalled sets for how long a body may make no progress while others want its room.
func (b *BodyBudget) SetStalled(stalled time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stalled = stalled
}
