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
	Row           int // of the panel that is selected
	Colour        bool
	// Filter leaves out the rows without this text. Typing says that keys change it.
	Filter string
	Typing bool
	Help   bool
	// Detail is the item of a row that is shown alone; nil: the tables are shown.
	Detail any
}

// Screen draws a view.
func Screen(v View) []string {
	p := painter(v.Colour)
	screen := []string{heading(p, v)}
	switch {
	case v.Help:
		return cut(filled(append(screen, helpLines(p)...), "any key closes the help", v), v)
	case v.At.IsZero():
		return cut(screen, v)
	case v.Detail != nil:
		return cut(filled(append(screen, detailLines(p, v)...), "⏎ or q back  p pause  ? help", v), v)
	}
	screen = append(screen, figures(p, v)...)
	screen = append(screen, "", tabs(p, v))
	if v.Height == 0 {
		return cut(append(screen, panelLines(p, v, v.Panel)...), v)
	}
	inner := v
	inner.Width -= len(gutter)
	rows := panelLines(p, inner, v.Panel)
	screen = append(screen, gutter+rows[0])
	return cut(filled(append(screen, scrolled(rows[1:], len(screen), v)...), keys(v), v), v)
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
func keys(v View) string {
	switch {
	case v.Typing:
		return "filter: " + printable.Text(v.Filter) + "▏ ⏎ keeps it, Esc clears it"
	case v.Filter != "":
		return "filter: " + printable.Text(v.Filter) + "  / changes it, Esc clears it"
	}
	return fmt.Sprintf("q quit  ? help  ↑ ↓ ⏎ details  / filter  1 2 3 tables  p pause  + - time (%s)", span(v.Span))
}

// gutter is before each row of a table, and marker before the selected one.
const gutter, marker = "  ", "› "

// scrolled returns the rows that there are lines for below so many others, and marks the selected one, which is among
// them.
func scrolled(rows []string, above int, v View) []string {
	room := max(1, v.Height-above-1)
	selected := min(v.Row, max(0, len(rows)-1))
	from := max(0, min(selected-room/2, len(rows)-room))
	var shown []string
	for i := from; i < min(len(rows), from+room); i++ {
		before := gutter
		if i == selected {
			before = marker
		}
		shown = append(shown, before+rows[i])
	}
	return shown
}

// filled makes a screen as high as the terminal, with a last line.
func filled(screen []string, last string, v View) []string {
	if v.Height == 0 {
		return screen
	}
	screen = screen[:min(len(screen), max(0, v.Height-1))]
	for len(screen) < v.Height-1 {
		screen = append(screen, "")
	}
	return append(screen, painter(v.Colour).paint(dim, last))
}

func cut(screen []string, v View) []string {
	for i := range screen {
		screen[i] = truncate(screen[i], v.Width)
	}
	return screen
}
