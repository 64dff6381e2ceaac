//go:build unix

package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// application is a page that uses the client for JavaScript as its quick start does, and keeps a line for each step.
const application = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>an application</title>
<script type="module">
import {Client, TokenStale} from '/client/index.js';

window.lines = [];
try {
  const client = new Client(location.origin);
  await client.do('browser/job-1', async (lease, signal) => {
    const {version} = await lease.put('report', 'all is well');
    window.lines.push('stored version ' + version + (signal.aborted ? ', lost' : ''));
  });
  const frozen = await client.acquire('browser/job-1', {ttlMs: 3000, heartbeat: false});
  await new Promise((resolve) => frozen.signal.addEventListener('abort', resolve));
  const newer = await client.acquire('browser/job-1', {waitMs: 60_000});
  await frozen.put('report', 'from the past').catch((error) => {
    window.lines.push(error instanceof TokenStale ? 'refused: ' + error.reason : String(error));
  });
  await newer.release();
  window.lines.push((await client.get('browser/job-1', 'report')).text());
} catch (error) {
  window.lines.push(String(error));
}
window.lines.push('end');
</script>`

// testJavaScriptClient checks that the client for JavaScript works in a browser, on a page that a proxy serves from the
// origin of the gateway.
func testJavaScriptClient(t *testing.T, g *gateway) {
	target, err := url.Parse(g.url)
	check(t, err)
	site := http.NewServeMux()
	site.Handle("/v1/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	site.Handle("/client/", http.StripPrefix("/client/", http.FileServer(http.Dir("../../../clients/typescript/src"))))
	site.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, application)
	})
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)

	faults := &recorder{base: server.URL}
	t.Cleanup(func() { faults.report(t) })
	p := openRecordedTab(t, faults, desktop)
	p.allow("412")
	p.open("")
	p.wait("the page has ended", `window.lines?.includes("end")`)
	const want = `["stored version 1","refused: superseded","all is well","end"]`
	if got := eval[string](p, "JSON.stringify(window.lines)"); got != want {
		t.Errorf("the page did %s, expected %s", got, want)
	}
}
