package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/printable"
)

// Panel is which table is shown below the figures.
type Panel int

// The panels, by their keys.
const (
	PanelRejections Panel = iota + 1
	PanelLocks
	PanelGateways
)

var panelNames = map[Panel]string{PanelRejections: "rejections", PanelLocks: "locks", PanelGateways: "gateways"}

// View is what is shown of a snapshot, and how.
type View struct {
	Snapshot

	URL   string
	Span  time.Duration // that the points cover
	Panel Panel
	// Lost says why the gateway gave no newer snapshot since At; nil while it does.
	Lost   error
	Paused bool
	At     time.Time // of the snapshot, by this machine's clock; zero: there is none yet
	Now    time.Time
	// Width and Height are those of the terminal; Height 0: as many lines as it takes.
	Width, Height int
	Scroll        int // rows of the panel that have been scrolled past
	Colour        bool
}

// Screen draws a view.
func Screen(v View) []string {
	p := painter(v.Colour)
	screen := []string{heading(p, v)}
	if v.At.IsZero() {
		return cut(screen, v)
	}
	screen = append(screen, figures(p, v)...)
	screen = append(screen, "", tabs(p, v))
	screen = append(screen, panelLines(p, v, v.Panel)...)
	if v.Height > 0 {
		screen = scrolled(screen, v)
	}
	return cut(screen, v)
}

// Report draws everything below each other, for a reader who has no keys: rows of each table at most.
func Report(v View, rows int) []string {
	p := painter(v.Colour)
	v.Rejections, v.Locks = v.Rejections[:min(rows, len(v.Rejections))], v.Locks[:min(rows, len(v.Locks))]
	screen := append([]string{heading(p, v)}, figures(p, v)...)
	for _, panel := range []Panel{PanelRejections, PanelLocks, PanelGateways} {
		screen = append(screen, "", p.paint(bold, panelNames[panel]))
		screen = append(screen, panelLines(p, v, panel)...)
	}
	return cut(screen, v)
}

// heading says whether what follows is fresh.
func heading(p painter, v View) string {
	state := p.paint(good, "● live")
	switch {
	case v.Lost != nil && v.At.IsZero():
		state = p.paint(alarm, "✕ no answer: "+printable.Text(v.Lost.Error()))
	case v.Lost != nil:
		state = p.paint(alarm, fmt.Sprintf("✕ no answer for %s: %s", span(v.Now.Sub(v.At).Round(time.Second)),
			printable.Text(v.Lost.Error())))
	case v.Paused:
		state = p.paint(mark, "‖ paused, "+span(v.Now.Sub(v.At).Round(time.Second))+" ago")
	case v.At.IsZero():
		state = "… loading"
	}
	now := v.Now.UTC().Format("15:04:05 UTC")
	return strings.Join([]string{p.paint(bold, "fencegate top"), printable.Text(v.URL), now, state}, "  ")
}

func tabs(p painter, v View) string {
	var names []string
	for _, panel := range []Panel{PanelRejections, PanelLocks, PanelGateways} {
		name := fmt.Sprintf(" %d %s ", panel, panelNames[panel])
		if panel == v.Panel {
			if v.Colour {
				name = p.paint(mark, name)
			} else {
				name = "[" + strings.TrimSpace(name) + "]"
			}
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// keys is the last line of the screen.
func keys(p painter, v View) string {
	return p.paint(dim, fmt.Sprintf("q quit  p pause  1 2 3 tables  ↑ ↓ scroll  + - time (%s)", span(v.Span)))
}

// scrolled leaves out the rows that were scrolled past, and those that the terminal has no lines for. The heading of
// the table stays.
func scrolled(screen []string, v View) []string {
	fixed := len(screen) - len(panelLines(painter(false), v, v.Panel)) + 1
	rows := screen[min(fixed, len(screen)):]
	room := max(1, v.Height-fixed-1)
	from := min(v.Scroll, max(0, len(rows)-room))
	shown := append([]string{}, screen[:min(fixed, len(screen))]...)
	shown = append(shown, rows[from:min(len(rows), from+room)]...)
	for len(shown) < v.Height-1 {
		shown = append(shown, "")
	}
	return append(shown, keys(painter(v.Colour), v))
}

func cut(screen []string, v View) []string {
	for i := range screen {
		screen[i] = truncate(screen[i], v.Width)
	}
	return screen
}
