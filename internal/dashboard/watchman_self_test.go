//go:build unix

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// badPages do what no page may.
var badPages = map[string]string{
	"console.error":                 `console.error("mind me")`,
	"console.warning":               `console.warn("mind me")`,
	"an exception that nobody":      `throw new Error("mind me")`,
	"mind me, a promise":            `Promise.reject(new Error("mind me, a promise"))`,
	"a request to elsewhere":        `fetch("http://127.0.0.1:9/mind-me").catch(() => {})`,
	"a dialog of the browser":       `alert("mind me")`,
	"a web socket":                  `new WebSocket("ws://127.0.0.1:9/mind-me")`,
	"404 (Not Found)":               `fetch("/mind-me").catch(() => {})`,
	"Content Security Policy":       `document.body.append(Object.assign(new Image(), {src: "data:image/gif;base64,R0lGODlhAQABAAAAACw="}))`,
	"error (security)":              `eval("1")`,
	"a request to elsewhere: data:": `fetch("data:text/plain,mind-me").catch(() => {})`,
}

// TestWatchmanSees shows that what would fail a test is seen at all.
func TestWatchmanSees(t *testing.T) {
	for what, script := range badPages {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/":
					if what == "Content Security Policy" || strings.Contains(what, "security") {
						w.Header().Set("Content-Security-Policy", "default-src 'self'")
					}
					w.Header().Set("Content-Type", "text/html")
					_, _ = w.Write([]byte(`<!doctype html><link rel=icon href="/icon"><title>bad</title><body>bad<script src="/script.js"></script>`))
				case "/script.js":
					w.Header().Set("Content-Type", "text/javascript")
					_, _ = w.Write([]byte(script))
				case "/icon":
				default:
					http.NotFound(w, r)
				}
			}))
			defer server.Close()
			inner := &gateway{url: server.URL}
			p := openTab(t, inner, desktop)
			defer func() { // what it saw is what was wanted
				p.mu.Lock()
				defer p.mu.Unlock()
				p.faults = nil
				p.allowed = append(p.allowed, "") // the console may tell of it once more
			}()
			if what == "a dialog of the browser" {
				p.dismissDialogs()
			}
			p.open("")
			p.until("the watchman sees "+what, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return strings.Contains(strings.Join(p.faults, "\n"), what)
			})
		})
	}
}
