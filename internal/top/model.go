package top

import (
	"context"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// spans are the times that the points can cover, as the dashboard has them.
var spans = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// readTimeout bounds one reading, so that a gateway that does not answer is told of.
const readTimeout = 10 * time.Second

// Options say how Run shows.
type Options struct {
	URL      string // as it is shown
	Interval time.Duration
	Span     time.Duration
	Colour   bool
	Input    io.Reader
	Output   io.Writer
}

// Run shows snapshots of source until the user quits or ctx ends. It returns an error where the terminal fails.
func Run(ctx context.Context, source Source, options Options) error {
	m := model{ctx: ctx, source: source, interval: options.Interval, view: View{
		URL: options.URL, Span: options.Span, Panel: PanelRejections, Now: time.Now(), Colour: options.Colour,
	}}
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithAltScreen(), tea.WithInput(options.Input), tea.WithOutput(options.Output), tea.WithoutSignalHandler())
	_, err := program.Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return err
}

// model is the state of the screen. One reading is under way at a time; turn tells a reading that is out of date from the newest.
type model struct {
	ctx      context.Context
	source   Source
	interval time.Duration
	view     View
	turn     int
}

// What happens beside keys and resizing.
type (
	readMsg struct {
		turn     int
		snapshot Snapshot
		at       time.Time
		err      error
	}
	turnMsg  int
	clockMsg time.Time
)

// Init begins to read.
func (m model) Init() tea.Cmd { return tea.Batch(m.read(), clock()) }

func (m model) read() tea.Cmd {
	ctx, turn, source, over := m.ctx, m.turn, m.source, m.view.Span
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		snapshot, err := source.Read(ctx, over)
		return readMsg{turn, snapshot, time.Now(), err}
	}
}

func clock() tea.Cmd {
	return tea.Tick(time.Second, func(at time.Time) tea.Msg { return clockMsg(at) })
}

// Update takes what has happened.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.view.Now = time.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.Width, m.view.Height = msg.Width, msg.Height
	case clockMsg:
		return m, clock()
	case readMsg:
		return m.took(msg)
	case turnMsg:
		if int(msg) == m.turn && !m.view.Paused {
			return m, m.read()
		}
	case tea.KeyMsg:
		return m.pressed(msg.String())
	}
	return m, nil
}

// took shows what was read, and has the next reading made after the interval.
func (m model) took(msg readMsg) (tea.Model, tea.Cmd) {
	if msg.turn != m.turn {
		return m, nil
	}
	if m.view.Lost = msg.err; msg.err == nil && !m.view.Paused {
		m.view.Snapshot, m.view.At = msg.snapshot, msg.at
	}
	turn := m.turn
	return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return turnMsg(turn) })
}

func (m model) pressed(key string) (tea.Model, tea.Cmd) {
	page := max(1, m.view.Height/2)
	switch key {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "p", " ":
		if m.view.Paused = !m.view.Paused; !m.view.Paused {
			return m.again()
		}
	case "1", "2", "3":
		m.view.Panel, m.view.Scroll = Panel(key[0]-'0'), 0
	case "tab":
		m.view.Panel, m.view.Scroll = m.view.Panel%PanelGateways+1, 0
	case "up", "k":
		m.scroll(-1)
	case "down", "j":
		m.scroll(1)
	case "pgup":
		m.scroll(-page)
	case "pgdown":
		m.scroll(page)
	case "home", "g":
		m.view.Scroll = 0
	case "+", "=":
		return m.spanned(1)
	case "-":
		return m.spanned(-1)
	}
	return m, nil
}

// again reads at once, whatever is under way.
func (m model) again() (tea.Model, tea.Cmd) {
	m.turn++
	return m, m.read()
}

func (m model) spanned(step int) (tea.Model, tea.Cmd) {
	at := 0
	for i, s := range spans {
		if m.view.Span >= s {
			at = i
		}
	}
	m.view.Span = spans[min(max(at+step, 0), len(spans)-1)]
	return m.again()
}

func (m *model) scroll(rows int) {
	m.view.Scroll = min(max(0, m.view.Scroll+rows), max(0, len(panelLines(false, m.view, m.view.Panel))-2))
}

// View draws the screen.
func (m model) View() string {
	if m.view.Width == 0 {
		return "" // the terminal has not said how large it is
	}
	return join(Screen(m.view))
}
