package top

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
)

// Control sequences of ECMA-48 and xterm.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	eraseLine   = "\x1b[K" // to its end
	eraseBelow  = "\x1b[J"
)

// terminal is the screen that Run draws on. It sends no queries, so nothing but keys arrives on the input.
type terminal struct {
	input  io.Reader
	output *os.File
	file   term.File   // the input, if that is a terminal
	before *term.State // of file
}

// openTerminal switches to the alternate screen, and the input to raw mode if it is a terminal. The caller closes it.
func openTerminal(input io.Reader, output *os.File) (*terminal, error) {
	t := &terminal{input: input, output: output}
	if file, ok := input.(term.File); ok && term.IsTerminal(file.Fd()) {
		before, err := term.MakeRaw(file.Fd())
		if err != nil {
			return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
		}
		t.file, t.before = file, before
	}
	if _, err := io.WriteString(output, enterScreen); err != nil {
		_ = t.close()
		return nil, fmt.Errorf("write to the terminal: %w", err)
	}
	return t, nil
}

// close restores the screen and the input's mode.
func (t *terminal) close() error {
	_, err := io.WriteString(t.output, leaveScreen)
	if t.before == nil {
		return err
	}
	return term.Restore(t.file.Fd(), t.before)
}

// size is 0, 0 where the terminal does not know it.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(t.output.Fd())
	if err != nil {
		return 0, 0
	}
	return width, height
}

// draw replaces what is on the screen, in one write, so that it does not flicker.
func (t *terminal) draw(lines []string) error {
	frame := goHome + strings.Join(lines, eraseLine+"\r\n") + eraseLine + eraseBelow
	_, err := io.WriteString(t.output, frame)
	return err
}

// keys sends the keys that are pressed, and closes the channel when the input ends or done is closed. A read of a
// terminal can't be interrupted: the goroutine may stay in one until the process ends.
func (t *terminal) keys(done <-chan struct{}) <-chan key {
	pressed := make(chan key)
	go func() {
		defer close(pressed)
		chunk := make([]byte, 256)
		for {
			n, err := t.input.Read(chunk)
			for _, k := range keysOf(chunk[:n]) {
				select {
				case pressed <- k:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return pressed
}
