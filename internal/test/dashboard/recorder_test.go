//go:build unix

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// recorder records what a page must never do.
type recorder struct {
	base string

	mu      sync.Mutex
	faults  []string
	allowed []string
	hosts   []string // besides the base
}

// allowHost lets the tab load pages of another host, whose address is "http://HOST:PORT".
func (r *recorder) allowHost(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = append(r.hosts, address)
}

func (r *recorder) mayRequest(url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(append(r.hosts, r.base), func(host string) bool { return strings.HasPrefix(url, host+"/") })
}

// allow ignores console entries about failed requests that contain a text, such as "net::ERR_CONNECTION_REFUSED" or
// "409", for tests that make requests fail.
func (r *recorder) allow(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allowed = append(r.allowed, text)
}

func (r *recorder) fault(what, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, what+": "+text)
}

// recorded returns whether a fault contains a text.
func (r *recorder) recorded(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.faults, "\n"), text)
}

// record receives all events of a tab.
func (r *recorder) record(event any) {
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		r.recordConsole(event)
	case *runtime.EventExceptionThrown:
		r.fault("an uncaught exception", exceptionText(event.ExceptionDetails))
	case *log.EventEntryAdded:
		r.recordEntry(event.Entry)
	case *network.EventRequestWillBeSent:
		if url := event.Request.URL; !r.mayRequest(url) {
			r.fault("a request to another host", url)
		}
	case *network.EventWebSocketCreated:
		r.fault("a web socket", event.URL)
	case *page.EventJavascriptDialogOpening:
		r.fault("a dialog of the browser", event.Message)
	}
}

func (r *recorder) recordConsole(event *runtime.EventConsoleAPICalled) {
	switch event.Type {
	case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
		var text strings.Builder
		for _, argument := range event.Args {
			text.WriteString(string(argument.Value) + argument.Description + " ")
		}
		r.fault("console."+string(event.Type), text.String())
	default:
	}
}

// recordEntry receives the browser's own console entries: failed requests, and violations of the content security
// policy.
func (r *recorder) recordEntry(entry *log.Entry) {
	if entry.Level != log.EntryLevelError && entry.Level != log.EntryLevelWarning {
		return
	}
	r.mu.Lock()
	allowed := r.allowed
	r.mu.Unlock()
	isAllowed := func(text string) bool {
		return entry.Source == log.EntrySourceNetwork && strings.Contains(entry.Text, text)
	}
	if !slices.ContainsFunc(allowed, isAllowed) {
		r.fault("the console has", string(entry.Level)+" ("+string(entry.Source)+"): "+entry.Text+" "+entry.URL)
	}
}

// report fails the test for each recorded fault, once.
func (r *recorder) report(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, fault := range r.faults {
		if slices.Index(r.faults, fault) == i {
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

// faultyScripts do what no page may do, by a text that the recorder must record.
var faultyScripts = map[string]string{
	"console.error":                    `console.error("a fault")`,
	"console.warning":                  `console.warn("a fault")`,
	"an uncaught exception":            `throw new Error("a fault")`,
	"a rejected promise":               `Promise.reject(new Error("a rejected promise"))`,
	"a request to another host":        `fetch("http://127.0.0.1:9/fault").catch(() => {})`,
	"a dialog of the browser":          `alert("a fault")`,
	"a web socket":                     `new WebSocket("ws://127.0.0.1:9/fault")`,
	"404 (Not Found)":                  `fetch("/fault").catch(() => {})`,
	"Content Security Policy":          `document.body.append(Object.assign(new Image(), {src: "data:image/gif;,"}))`,
	"error (security)":                 `eval("1")`,
	"a request to another host: data:": `fetch("data:text/plain,fault").catch(() => {})`,
}

// TestRecorder checks that the recorder records every fault.
func TestRecorder(t *testing.T) {
	t.Parallel()
	for what, script := range faultyScripts {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/":
					if strings.Contains(strings.ToLower(what), "security") {
						w.Header().Set("Content-Security-Policy", "default-src 'self'")
					}
					w.Header().Set("Content-Type", "text/html")
					_, _ = w.Write([]byte(`<!doctype html><link rel=icon href="/icon"><body><script src="/script.js"></script>`))
				case "/script.js":
					w.Header().Set("Content-Type", "text/javascript")
					_, _ = w.Write([]byte(script))
				case "/icon":
				default:
					http.NotFound(w, r)
				}
			}))
			defer server.Close()
			p := openRecordedTab(t, &recorder{base: server.URL}, desktop)
			if what == "a dialog of the browser" {
				p.dismissDialogs()
			}
			p.open("")
			p.until("the recorder records "+what, func() bool { return p.recorded(what) })
		})
	}
}
