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

	"github.com/fencegate/fencegate/internal/pgtest"
)

// chromium is the browser of this process, started by the first test that needs one.
var chromium browser

type browser struct {
	dir string // of its profile, and of all else that it writes

	once   sync.Once
	ctx    context.Context // chromedp keeps the browser in it
	cancel func()
	err    error
}

// open starts the browser, unless it runs.
func (b *browser) open(t *testing.T) context.Context {
	t.Helper()
	path := pgtest.Require(t, "chromium")
	b.once.Do(func() { b.err = b.start(path) })
	check(t, b.err)
	return b.ctx
}

func (b *browser) start(path string) error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path),
		chromedp.UserDataDir(b.dir),
		chromedp.Env("HOME="+b.dir, "XDG_CONFIG_HOME="+b.dir, "XDG_CACHE_HOME="+b.dir),
		chromedp.NoSandbox, // it can't have one as root, and looks at nothing but the gateway
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("no-pings", true),
		// Whatever the browser itself would like to reach, it does not find.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("lang", "en-GB"),
	)
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx = ctx
	b.cancel = func() {
		_ = chromedp.Cancel(ctx) // asks it to end, and waits; below it is made to
		cancel()
		cancelAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// stop ends the browser, if it was started.
func (b *browser) stop() {
	if b.cancel != nil {
		b.cancel()
	}
}
