//go:build unix

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
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

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

const (
	artifactsEnv = "FENCEGATE_ARTIFACTS"
	// pictureHeightMax is the greatest height of a picture of a long page.
	pictureHeightMax = 2000
)

// tab is a page of the browser in a context of its own, as on a first visit.
type tab struct {
	*recorder

	t    *testing.T
	ctx  context.Context // chromedp keeps the tab in it
	base string
}

// device is a visitor's screen and settings.
type device struct {
	name          string
	width, height int64
	scale         float64
	dark, phone   bool
}

var (
	desktop     = device{name: "light", width: 1280, height: 900, scale: 1}
	desktopDark = device{name: "dark", width: 1280, height: 900, scale: 1, dark: true}
	phone       = device{name: "phone", width: 375, height: 812, scale: 2, phone: true}
	phoneDark   = device{name: "phone-dark", width: 375, height: 812, scale: 2, phone: true, dark: true}
)

// openTab opens an empty tab until the test ends, and then fails the test for what the page did and must not do.
func openTab(t *testing.T, g *gateway, as device) *tab {
	t.Helper()
	faults := &recorder{base: g.url}
	t.Cleanup(func() { faults.report(t) })
	return openRecordedTab(t, faults, as)
}

// openRecordedTab opens an empty tab until the test ends.
func openRecordedTab(t *testing.T, faults *recorder, as device) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium.open(t), chromedp.WithNewBrowserContext(),
		chromedp.WithListener(faults.record))
	ctx, cancelTimeout := context.WithTimeout(ctx, 5*await.Limit)
	p := &tab{recorder: faults, t: t, ctx: ctx, base: faults.base}
	t.Cleanup(func() {
		p.keepFailure()
		cancelTimeout()
		cancel()
	})
	scheme := "light"
	if as.dark {
		scheme = "dark"
	}
	p.do(
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: as.width, Height: as.height, DeviceScaleFactor: as.scale, Mobile: as.phone,
		}),
		command(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: as.phone}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}}),
	)
	return p
}

// run runs a part of the test in this tab as a subtest.
func (p *tab) run(name string, test func()) {
	outer := p.t
	outer.Run(name, func(t *testing.T) {
		p.t = t
		defer func() {
			p.keepFailure()
			p.t = outer
		}()
		test()
	})
}

// command sends the browser a command and ignores its result.
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

// onNode performs an action on an element. It reports false if the page has replaced the element meanwhile: then nothing
// was done. A replacement that the selector does not match is waited for in vain, so the wait is bounded.
func (p *tab) onNode(action chromedp.Action[chromedp.Void]) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, await.Limit/4)
	defer cancel()
	err := chromedp.Do(ctx, action)
	replaced := err != nil && strings.Contains(err.Error(), "Could not find node with given id") ||
		errors.Is(err, context.DeadlineExceeded) && p.ctx.Err() == nil
	if replaced {
		return false
	}
	check(p.t, err)
	return true
}

// open shows a page of the dashboard, such as "#/locks".
func (p *tab) open(hash string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + "/" + hash))
}

// eval returns the value of a JavaScript expression; each %s in it is a value, written as JSON.
func eval[T any](p *tab, expression string, values ...any) T {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, evaluation[T](expression, values))
	check(p.t, err)
	return result
}

func evaluation[T any](expression string, values []any) chromedp.Action[T] {
	if len(values) == 0 {
		return chromedp.Evaluate[T](expression)
	}
	written := make([]any, len(values))
	for i, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // texts and numbers can be marshalled
		}
		written[i] = string(text)
	}
	return chromedp.Evaluate[T](fmt.Sprintf(expression, written...))
}

// wait returns when a JavaScript expression is true; each %s in it is a value, written as JSON. what names the event,
// for the message of a timeout.
func (p *tab) wait(what, expression string, values ...any) {
	p.t.Helper()
	p.until(what, func() bool {
		holds, err := chromedp.Run(p.ctx, evaluation[bool]("Boolean("+expression+")", values))
		return err == nil && holds // during a navigation an evaluation may fail
	})
}

// waitLoaded waits until no part of the page is being loaded.
func (p *tab) waitLoaded() {
	p.t.Helper()
	p.wait("everything is loaded",
		`![...document.querySelectorAll("main .loading")].some((node) => node.checkVisibility())`)
}

// until polls for an event in the page or behind it.
func (p *tab) until(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(await.Limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited %s until %s\nthe page shows:\n%s", await.Limit, what, p.text("body"))
		}
	}
}

// waitText returns when the visible text of an element contains a text.
func (p *tab) waitText(selector, text string) {
	p.t.Helper()
	what := fmt.Sprintf("%s shows %q", selector, text)
	p.wait(what, "document.querySelector(%s)?.innerText.includes(%s)", selector, text)
}

// text returns the visible text of an element, "" if there is none.
func (p *tab) text(selector string) string {
	text, err := chromedp.Run(p.ctx,
		evaluation[string]("document.querySelector(%s)?.innerText ?? ''", []any{selector}))
	if err != nil {
		return err.Error()
	}
	return text
}

// click waits until the first element of a selector is visible and enabled, and clicks it.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.wait(selector+" can be clicked",
		"((node) => node?.checkVisibility() && !node.disabled)(document.querySelector(%s))", selector)
	if !p.onNode(chromedp.Click(chromedp.CSS(selector))) {
		p.click(selector)
	}
}

// clickText waits for a visible, enabled element of a selector whose text contains a text, and clicks it.
func (p *tab) clickText(selector, text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%s %q can be clicked", selector, text), `(() => {
		document.querySelector("[data-test-target]")?.removeAttribute("data-test-target");
		const found = [...document.querySelectorAll(%s)]
			.find((node) => node.innerText.includes(%s) && node.checkVisibility() && !node.disabled);
		found?.setAttribute("data-test-target", "");
		found?.addEventListener("click", () => window.testMissed = false, {once: true, capture: true});
		return window.testMissed = Boolean(found);
	})()`, selector, text)
	clicked := p.onNode(chromedp.Click(chromedp.CSS("[data-test-target]")))
	// An element that the page replaces between press and release gets no click. After a navigation nothing is missed.
	missed, err := chromedp.Run(p.ctx, evaluation[bool]("Boolean(window.testMissed)", nil))
	if !clicked || err == nil && missed {
		p.clickText(selector, text)
	}
}

// write replaces the text of an input.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.wait(selector+" is visible", "document.querySelector(%s)?.checkVisibility()", selector)
	if !p.onNode(chromedp.Focus(chromedp.CSS(selector))) {
		p.write(selector, text)
		return
	}
	p.do(evaluation[chromedp.Void]("document.querySelector(%s).select?.()", []any{selector}), chromedp.KeyEvent(text))
}

// press types keys into the element with the focus.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// inject runs a script in each page that is loaded from now on, before the page's own scripts.
func (p *tab) inject(script string) {
	p.t.Helper()
	p.do(command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}))
}

// withClockAhead sets the clock of the browser's computer wrong.
func (p *tab) withClockAhead(ms int) {
	p.t.Helper()
	p.inject(fmt.Sprintf(`{
		const Right = Date, now = Date.now;
		Date = class extends Right {
			constructor(...given) { if (given.length === 0) super(now() + %[1]d); else super(...given); }
			static now() { return now() + %[1]d; }
		};
	}`, ms))
}

// withoutPolling disables the slow timers of pages, so that all changes come from their stream.
func (p *tab) withoutPolling() {
	p.t.Helper()
	p.inject(`{
		const right = window.setInterval;
		window.setInterval = (work, ms, ...more) => ms >= 5000 ? 0 : right(work, ms, ...more);
	}`)
}

// dismissDialogs closes dialogs of the browser. The recorder records them all the same.
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

// picture stores a picture of the page, as high as the viewport or the content up to heightMax, if FENCEGATE_ARTIFACTS
// is set.
func (p *tab) picture(name string, heightMax float64) {
	p.t.Helper()
	if dir := os.Getenv(artifactsEnv); dir != "" {
		check(p.t, p.keep(dir, name, heightMax))
	}
}

func (p *tab) keep(dir, name string, heightMax float64) error {
	size, err := chromedp.Call(p.ctx, page.GetLayoutMetrics, cdp.Empty{})
	if err != nil {
		return err
	}
	viewport := size.CSSLayoutViewport
	height := max(float64(viewport.ClientHeight), min(size.CSSContentSize.Height, heightMax))
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: new(true),
		Clip:                  &page.Viewport{Width: float64(viewport.ClientWidth), Height: height, Scale: 1},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o644)
}

// keepFailure stores a picture of the page if the test has failed.
func (p *tab) keepFailure() {
	dir := os.Getenv(artifactsEnv)
	if dir == "" || !p.t.Failed() {
		return
	}
	name := "failed-" + strings.NewReplacer("/", "-", " ", "-").Replace(p.t.Name())
	if err := p.keep(dir, name, pictureHeightMax); err != nil {
		p.t.Log(err)
	}
}
