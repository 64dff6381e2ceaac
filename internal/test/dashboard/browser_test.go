//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// chromium is the browser of this process, started by the first test that needs it.
var chromium browser

type browser struct {
	once   sync.Once
	ctx    context.Context // chromedp keeps the browser in it
	cancel func()
	err    error
}

// open starts the browser, unless it is running.
func (b *browser) open(t *testing.T) context.Context {
	t.Helper()
	path := postgres.Require(t, "chromium")
	b.once.Do(func() { b.err = b.start(path) })
	check(t, b.err)
	return b.ctx
}

func (b *browser) start(path string) error {
	dir, err := os.MkdirTemp("", "fencegate-dashboard-") // for its profile and all its other files
	if err != nil {
		return err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path),
		chromedp.UserDataDir(dir),
		chromedp.Env("HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir),
		chromedp.NoSandbox, // root can't have one, and the browser only loads pages of the gateway
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("no-pings", true),
		// The browser's own services can't be reached.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("lang", "en-GB"),
		chromedp.WSURLReadTimeout(await.Limit),
	)
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx = ctx
	b.cancel = func() {
		_ = chromedp.Cancel(ctx) // ends it gracefully, and waits; the calls below force it
		cancel()
		cancelAllocator()
		_ = os.RemoveAll(dir)
	}
	if err := chromedp.Do(ctx); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// stop ends the browser if it was started.
func (b *browser) stop() {
	if b.cancel != nil {
		b.cancel()
	}
}

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
