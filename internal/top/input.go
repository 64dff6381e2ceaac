package top

import (
	"unicode"
	"unicode/utf8"
)

// press does what a key means at this moment, and reports whether it ends the program.
func (m *model) press(pressed key) (quit bool) {
	switch {
	case pressed == keyCtrlC:
		return true
	case m.view.Typing:
		m.typed(pressed)
		return false
	}
	pressed = pressed.withoutAlias()
	switch {
	case pressed == "?":
		m.view.Help = !m.view.Help
	case m.view.Help:
		m.view.Help = false
	case m.view.Detail != nil && (pressed == keyEscape || pressed == keyEnter):
		m.view.Detail = nil
	case pressed == keyEscape && m.view.Filter != "":
		m.filter("")
	case pressed == keyEscape:
		return true
	default:
		m.command(pressed)
	}
	return false
}

// typed changes the filter by a key.
func (m *model) typed(pressed key) {
	filter := m.view.Filter
	last, size := utf8.DecodeLastRuneInString(filter)
	first, _ := utf8.DecodeRuneInString(string(pressed))
	switch {
	case pressed == keyEnter || pressed == "\n":
		m.view.Typing = false
	case pressed == keyEscape:
		m.view.Typing = false
		m.filter("")
	case pressed == keyEraseAll:
		m.filter("")
	case (pressed == keyErase || pressed == "\b") && last != utf8.RuneError:
		m.filter(filter[:len(filter)-size])
	case unicode.IsPrint(first) && first != utf8.RuneError:
		m.filter(filter + string(pressed))
	}
}

func (m *model) filter(text string) { m.view.Filter, m.view.Row = text, 0 }

// command does what a key means where a table is shown.
func (m *model) command(pressed key) {
	page := max(1, m.view.Height/2)
	switch pressed {
	case "p":
		if m.view.Paused = !m.view.Paused; m.view.Paused {
			m.due.Stop()
		} else {
			m.restart()
		}
	case "1", "2", "3":
		m.show(Panel(pressed[0] - '0'))
	case keyTab:
		m.show(m.view.Panel%PanelGateways + 1)
	case "/":
		m.view.Typing, m.view.Detail = true, nil
	case keyEnter:
		if items := tableOf(m.view, m.view.Panel).items; len(items) > 0 {
			m.view.Detail = items[min(m.view.Row, len(items)-1)]
		}
	case keyUp:
		m.move(-1)
	case keyDown:
		m.move(1)
	case keyPageUp:
		m.move(-page)
	case keyPageDown:
		m.move(page)
	case keyHome:
		m.view.Row = 0
	case "+":
		m.widen(1)
	case "-":
		m.widen(-1)
	}
}

func (m *model) show(panel Panel) { m.view.Panel, m.view.Row, m.view.Detail = panel, 0, nil }

// move selects another row.
func (m *model) move(rows int) {
	last := len(tableOf(m.view, m.view.Panel).rows) - 1
	m.view.Row = max(0, min(m.view.Row+rows, last))
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
