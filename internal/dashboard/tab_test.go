//go:build unix

package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

const (
	artifactsEnv = "FENCEGATE_ARTIFACTS"
	// pictureHeightMax is as much of a long page as is worth a picture.
	pictureHeightMax = 2000
)

// tab is a page of the browser in a context of its own, as if a visitor came for the first time.
type tab struct {
	*watchman

	t    *testing.T
	ctx  context.Context // chromedp keeps the tab in it
	base string
}

// look is how a visitor sees pages.
type look struct {
	name          string
	width, height int64
	dark, phone   bool
}

var (
	desktop     = look{name: "light", width: 1280, height: 900}
	desktopDark = look{name: "dark", width: 1280, height: 900, dark: true}
	phone       = look{name: "phone", width: 390, height: 844, phone: true}
)

// openTab shows nothing yet. It is closed when the test ends.
func openTab(t *testing.T, g *gateway, as look) *tab {
	t.Helper()
	guard := &watchman{base: g.url}
	ctx, cancel := chromedp.NewContext(chromium.open(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(guard.see))
	ctx, cancelTimeout := context.WithTimeout(ctx, 5*patience)
	p := &tab{watchman: guard, t: t, ctx: ctx, base: g.url}
	t.Cleanup(func() {
		p.keepFailure()
		cancelTimeout()
		cancel()
		p.report(t)
	})
	p.resize(as)
	return p
}

// resize makes the tab look as another visitor sees it.
func (p *tab) resize(as look) {
	p.t.Helper()
	scheme := "light"
	if as.dark {
		scheme = "dark"
	}
	scale := 1.0
	if as.phone {
		scale = 2
	}
	p.do(
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: as.width, Height: as.height, DeviceScaleFactor: scale, Mobile: as.phone,
		}),
		command(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: as.phone}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}}),
	)
}

// command sends the browser a command whose answer does not matter.
func command[P, R any](name cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, name, params)
		return err
	})
}

// do performs actions of the browser.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	check(p.t, chromedp.Do(p.ctx, actions...))
}

// open shows a page of the dashboard, such as "#/locks".
func (p *tab) open(hash string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + "/" + hash))
}

// eval returns what a JavaScript expression is; each %s in it is a value, written as JSON.
func eval[T any](p *tab, expression string, values ...any) T {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, evaluation[T](expression, values))
	check(p.t, err)
	return result
}

func evaluation[T any](expression string, values []any) chromedp.Action[T] {
	written := make([]any, len(values))
	for i, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // texts and numbers can be written
		}
		written[i] = string(text)
	}
	return chromedp.Evaluate[T](fmt.Sprintf(expression, written...))
}

// wait returns when a JavaScript expression is true; each %s in it is a value, written as JSON.
func (p *tab) wait(what, expression string, values ...any) {
	p.t.Helper()
	p.until(what, func() bool {
		holds, err := chromedp.Run(p.ctx, evaluation[bool]("Boolean("+expression+")", values))
		return err == nil && holds // while a page is being left there is nothing to ask
	})
}

// until polls, for what happens in the page or behind it.
func (p *tab) until(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("never happened: %s\nthe page shows:\n%s", what, p.text("body"))
		}
	}
}

// waitText returns when the text that is seen of an element has something in it.
func (p *tab) waitText(selector, text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%s shows %q", selector, text), "document.querySelector(%s)?.innerText.includes(%s)", selector, text)
}

// text is what is seen of an element; "" if there is none.
func (p *tab) text(selector string) string {
	text, err := chromedp.Run(p.ctx, evaluation[string]("document.querySelector(%s)?.innerText ?? ''", []any{selector}))
	if err != nil {
		return err.Error()
	}
	return text
}

// click presses the mouse on the first element that a selector finds, when it is there.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.wait(selector+" is there", "document.querySelector(%s)?.checkVisibility()", selector)
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// clickText presses the mouse on the first element that a selector finds whose text has something in it, when it is there and can be pressed.
func (p *tab) clickText(selector, text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%s %q is there", selector, text), `(() => {
		document.querySelector("[data-test-target]")?.removeAttribute("data-test-target");
		const found = [...document.querySelectorAll(%s)].find((node) => node.innerText.includes(%s) && node.checkVisibility() && !node.disabled);
		found?.setAttribute("data-test-target", "");
		return found;
	})()`, selector, text)
	p.do(chromedp.Click(chromedp.CSS("[data-test-target]")))
}

// write types a text into an element, over what stands there.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.wait(selector+" is there", "document.querySelector(%s)?.checkVisibility()", selector)
	p.do(chromedp.Focus(chromedp.CSS(selector)), evaluation[chromedp.Void]("document.querySelector(%s).select?.()", []any{selector}), chromedp.KeyEvent(text))
}

// withClockAhead has the clock of the browser's computer be wrong, in pages that are opened from now on.
func (p *tab) withClockAhead(ms int) {
	p.t.Helper()
	p.do(command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(`{
		const Right = Date, now = Date.now;
		Date = class extends Right {
			constructor(...given) { if (given.length === 0) super(now() + %[1]d); else super(...given); }
			static now() { return now() + %[1]d; }
		};
	}`, ms)}))
}

// withoutPolling keeps pages that are opened from now on from looking anew now and then: what comes into them was told by their stream.
func (p *tab) withoutPolling() {
	p.t.Helper()
	p.do(command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `{
		const right = window.setInterval;
		window.setInterval = (work, ms, ...more) => ms >= 5000 ? 0 : right(work, ms, ...more);
	}`}))
}

// dismissDialogs closes whatever dialogs of the browser open from now on; the watchman minds them all the same.
func (p *tab) dismissDialogs() {
	dialogs := chromedp.Events(p.ctx, page.JavascriptDialogOpening)
	go func() {
		for _, err := range dialogs {
			if err != nil {
				return
			}
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}
	}()
}

// press types keys, wherever the focus is.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// picture keeps the page as it is seen, from its top, if artifacts are kept.
func (p *tab) picture(name string) {
	p.t.Helper()
	dir := os.Getenv(artifactsEnv)
	if dir == "" {
		return
	}
	check(p.t, p.keep(dir, name, pictureHeightMax))
}

// screen keeps what is seen of the page without scrolling, if artifacts are kept.
func (p *tab) screen(name string) {
	p.t.Helper()
	if dir := os.Getenv(artifactsEnv); dir != "" {
		check(p.t, p.keep(dir, name, 0))
	}
}

// keep takes a picture of as much of the page as is to be seen, and of more up to a height.
func (p *tab) keep(dir, name string, height float64) error {
	size, err := chromedp.Call(p.ctx, page.GetLayoutMetrics, cdp.Empty{})
	if err != nil {
		return err
	}
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: ptr(true), Clip: &page.Viewport{
		Width: float64(size.CSSLayoutViewport.ClientWidth), Height: max(float64(size.CSSLayoutViewport.ClientHeight), min(size.CSSContentSize.Height, height)), Scale: 1,
	}})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o644)
}

// keepFailure keeps a picture of a page on which a test failed.
func (p *tab) keepFailure() {
	if dir := os.Getenv(artifactsEnv); dir != "" && p.t.Failed() {
		if err := p.keep(dir, "failed-"+strings.NewReplacer("/", "-", " ", "-").Replace(p.t.Name()), pictureHeightMax); err != nil {
			p.t.Log(err)
		}
	}
}
