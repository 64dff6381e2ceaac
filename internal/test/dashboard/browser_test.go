//go:build unix

package dashboard

import (
	"context"
	"fmt"
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
