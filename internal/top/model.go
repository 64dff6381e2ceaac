package top

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/fencegate/fencegate/lockclient/admin"
)

// spans are the times that the points can cover, as the dashboard has them.
var spans = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// readTimeout bounds one reading.
const readTimeout = 10 * time.Second

// Options say how Run shows.
type Options struct {
	URL      string // as it is shown
	Interval time.Duration
	Span     time.Duration
	Colour   bool
	Input    io.Reader
	Output   *os.File // a terminal
}

// Run shows snapshots of gateway until the user quits or ctx ends. It returns an error where the terminal fails.
func Run(ctx context.Context, gateway *admin.Client, options Options) (err error) {
	screen, err := openTerminal(options.Input, options.Output)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, screen.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &model{
		ctx: ctx, gateway: gateway, interval: options.Interval, due: time.NewTimer(0), readings: make(chan reading),
		view: View{URL: options.URL, Span: options.Span, Panel: PanelRejections, Colour: options.Colour},
	}
	defer m.due.Stop()
	return m.run(screen)
}

// model is the state of the screen. One reading counts at a time: turn numbers the newest; older ones
// are dropped.
type model struct {
	ctx      context.Context
	gateway  *admin.Client
	interval time.Duration
	view     View
	turn     int
	due      *time.Timer // of the next reading
	readings chan reading
}

// reading is what was read, or why it could not be.
type reading struct {
	turn     int
	snapshot Snapshot
	at       time.Time
	err      error
}

// run draws after everything that happens, until the user quits or ctx ends.
func (m *model) run(screen *terminal) error {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	resized := make(chan os.Signal, 1)
	notifyResized(resized)
	defer signal.Stop(resized)
	keys := screen.keys(m.ctx.Done())
	for {
		m.view.Now = time.Now()
		if m.view.Width, m.view.Height = screen.size(); m.view.Width > 0 {
			if err := screen.draw(Screen(m.view)); err != nil {
				return err
			}
		}
		select {
		case <-m.ctx.Done():
			return nil
		case <-clock.C:
		case <-resized:
		case <-m.due.C:
			m.read()
		case got := <-m.readings:
			m.take(got)
		case pressed, open := <-keys:
			if !open {
				keys = nil // there is no keyboard: an interrupt ends it
			}
			if pressed == keyEscape {
				return nil
			}
			m.press(pressed)
		}
	}
}

// read begins a reading.
func (m *model) read() {
	ctx, turn, over := m.ctx, m.turn, m.view.Span
	go func() {
		reading := reading{turn: turn}
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		reading.snapshot, reading.err = Read(limited, m.gateway, over)
		reading.at = time.Now()
		select {
		case m.readings <- reading:
		case <-ctx.Done():
		}
	}()
}

// take shows what was read. The next reading is due after the interval.
func (m *model) take(got reading) {
	if got.turn != m.turn {
		return
	}
	if m.view.Lost = got.err; got.err == nil && !m.view.Paused {
		m.view.Snapshot, m.view.At = got.snapshot, got.at
	}
	if !m.view.Paused {
		m.due.Reset(m.interval)
	}
}

func (m *model) press(pressed key) {
	page := max(1, m.view.Height/2)
	switch pressed {
	case "p":
		if m.view.Paused = !m.view.Paused; m.view.Paused {
			m.due.Stop()
		} else {
			m.restart()
		}
	case "1", "2", "3":
		m.view.Panel, m.view.Scroll = Panel(pressed[0]-'0'), 0
	case keyTab:
		m.view.Panel, m.view.Scroll = m.view.Panel%PanelGateways+1, 0
	case keyUp:
		m.scroll(-1)
	case keyDown:
		m.scroll(1)
	case keyPageUp:
		m.scroll(-page)
	case keyPageDown:
		m.scroll(page)
	case keyHome:
		m.view.Scroll = 0
	case "+":
		m.widen(1)
	case "-":
		m.widen(-1)
	}
}

// restart reads at once, and drops a reading that is under way.
func (m *model) restart() {
	m.turn++
	m.due.Reset(0)
}

// widen changes the time that is shown by so many steps.
func (m *model) widen(steps int) {
	at := 0
	for i, s := range spans {
		if m.view.Span >= s {
			at = i
		}
	}
	m.view.Span = spans[min(max(at+steps, 0), len(spans)-1)]
	m.restart()
}

func (m *model) scroll(rows int) {
	m.view.Scroll = min(max(0, m.view.Scroll+rows), max(0, len(panelLines(false, m.view, m.view.Panel))-2))
}
