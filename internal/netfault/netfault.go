// Package netfault passes HTTP calls on to a gateway, and harms some of them on their way: for tests of clients.
package netfault

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
)

// Fault is what happens to one call.
type Fault string

// The faults.
const (
	None          Fault = ""
	RequestLost   Fault = "request_lost"   // the gateway never gets it
	AnswerLost    Fault = "answer_lost"    // the gateway executes it, and its answer is lost
	AnswerCut     Fault = "answer_cut"     // half of the answer arrives
	BadGateway    Fault = "bad_gateway"    // the gateway executes it, and a proxy answers instead
	RequestHeld   Fault = "request_held"   // it waits, and then continues
	AnswerHeld    Fault = "answer_held"    // its answer does
	AnswerEndless Fault = "answer_endless" // it arrives without its length, and does not end
	Page          Fault = "page"           // the gateway never gets it, and a proxy answers 200 with a page
	Redirect      Fault = "redirect"       // the same with a redirect to where it was sent
	Unavailable   Fault = "unavailable"    // the gateway refuses it for now
	RateLimited   Fault = "rate_limited"   // the gateway refuses it for now, since the caller sends too much
)

// pass passes one call on to the gateway, with a fault. hold returns when a held call shall continue.
func pass(w http.ResponseWriter, r *http.Request, gatewayURL string, fault Fault, hold func(*http.Request)) {
	body, err := io.ReadAll(r.Body)
	abortOn(err)
	switch fault {
	case RequestLost:
		panic(http.ErrAbortHandler)
	case RequestHeld:
		hold(r)
	case Page, Redirect, Unavailable, RateLimited:
		replace(w, r, fault)
		return
	}
	request, err := http.NewRequestWithContext( //nolint:gosec // the host is the gateway's
		r.Context(), r.Method, gatewayURL+r.URL.RequestURI(), bytes.NewReader(body))
	abortOn(err)
	request.Header = r.Header.Clone()
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	abortOn(err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	abortOn(err)
	switch fault {
	case AnswerLost:
		panic(http.ErrAbortHandler)
	case AnswerHeld:
		hold(r)
	case BadGateway:
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	if fault == AnswerEndless {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(answer.StatusCode)
	if fault == AnswerCut {
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text)
	if fault == AnswerEndless {
		abortOn(http.NewResponseController(w).Flush())
		hold(r)
	}
}

// replace answers instead of the gateway.
func replace(w http.ResponseWriter, r *http.Request, fault Fault) {
	switch fault {
	case Page:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<p>Sign in to the network")
	case Redirect:
		w.Header().Set("Location", r.RequestURI) // a client that follows it is answered
		w.WriteHeader(http.StatusTemporaryRedirect)
	case Unavailable:
		problem(w, http.StatusServiceUnavailable, `"code":"unavailable","outcome":"not_applied"`)
	case RateLimited:
		problem(w, http.StatusTooManyRequests, `"code":"rate_limited"`)
	}
}

func problem(w http.ResponseWriter, status int, fields string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"type":"about:blank","title":"Refused","status":`+strconv.Itoa(status)+
		`,"detail":"A fault of the test.","retryable":true,`+fields+`}`)
}

func abortOn(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}
