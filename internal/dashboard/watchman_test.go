//go:build unix

package dashboard

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// watchman sees what a page does that it must never do.
type watchman struct {
	base string

	mu      sync.Mutex
	faults  []string
	allowed []string
}

// allow lets pass what the console says of requests, where the test makes them fail: "net::ERR_CONNECTION_REFUSED", "409".
func (w *watchman) allow(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = append(w.allowed, text)
}

func (w *watchman) fault(what, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, what+": "+text)
}

// see is told of all events of a tab.
func (w *watchman) see(event any) {
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		w.seeConsole(event)
	case *runtime.EventExceptionThrown:
		w.fault("an exception that nobody caught", exceptionText(event.ExceptionDetails))
	case *log.EventEntryAdded:
		w.seeEntry(event.Entry)
	case *network.EventRequestWillBeSent:
		w.seeRequest(event.Request.URL)
	case *network.EventWebSocketCreated:
		w.fault("a web socket", event.URL)
	case *page.EventJavascriptDialogOpening:
		w.fault("a dialog of the browser", event.Message)
	}
}

func (w *watchman) seeConsole(event *runtime.EventConsoleAPICalled) {
	switch event.Type {
	case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
		var text strings.Builder
		for _, argument := range event.Args {
			text.WriteString(string(argument.Value) + argument.Description + " ")
		}
		w.fault("console."+string(event.Type), text.String())
	default:
	}
}

// seeEntry is told of what the browser itself writes to the console: requests that failed, and what the content security policy forbade.
func (w *watchman) seeEntry(entry *log.Entry) {
	if entry.Level != log.EntryLevelError && entry.Level != log.EntryLevelWarning {
		return
	}
	w.mu.Lock()
	allowed := w.allowed
	w.mu.Unlock()
	for _, text := range allowed {
		if entry.Source == log.EntrySourceNetwork && strings.Contains(entry.Text, text) {
			return
		}
	}
	w.fault("the console says", string(entry.Level)+" ("+string(entry.Source)+"): "+entry.Text+" "+entry.URL)
}

func (w *watchman) seeRequest(url string) {
	if !strings.HasPrefix(url, w.base+"/") {
		w.fault("a request to elsewhere", url)
	}
}

// report fails the test for all that was seen.
func (w *watchman) report(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, fault := range w.faults {
		if slices.Index(w.faults, fault) == i { // once, however often it was seen
			t.Error(fault)
		}
	}
}

func exceptionText(details *runtime.ExceptionDetails) string {
	if details.Exception == nil {
		return details.Text
	}
	return details.Text + " " + details.Exception.Description
}
