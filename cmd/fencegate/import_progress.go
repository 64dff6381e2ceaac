package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	progressEvery = 200 * time.Millisecond
	progressWidth = 30
)

// importProgressBar shows at a terminal how far an import has come. It is written by hand, and not by a library: one line and one number
// need no more than a carriage return, and a bar that is also right where the size is not known.
type importProgressBar struct {
	out   io.Writer // nil: nothing is shown
	size  int64     // of the input; 0: not known
	begun time.Time
	last  time.Time
	lines int64
	bytes int64
}

func newImportProgress(con *console, wanted bool, size int64) *importProgressBar {
	bar := &importProgressBar{size: size, begun: time.Now()}
	if file, ok := con.err.(*os.File); ok && wanted && !con.json && isTerminal(file) {
		bar.out = file
	}
	return bar
}

// isTerminal says whether a person reads it.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// passed counts a line.
func (b *importProgressBar) passed(bytes int) {
	b.lines++
	b.bytes += int64(bytes)
	if b.out != nil && time.Since(b.last) >= progressEvery {
		b.last = time.Now()
		b.draw()
	}
}

func (b *importProgressBar) draw() {
	rate := float64(b.lines) / max(time.Since(b.begun).Seconds(), 0.001)
	if b.size == 0 {
		_, _ = fmt.Fprintf(b.out, "\r\x1b[K%d lines, %.0f a second", b.lines, rate)
		return
	}
	share := min(1, float64(b.bytes)/float64(b.size))
	full := int(share * progressWidth)
	left := time.Duration(float64(time.Since(b.begun)) * (1 - share) / max(share, 1e-9)).Round(time.Second)
	_, _ = fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %3.0f %%, %d lines, %.0f a second, %s left",
		strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), 100*share, b.lines, rate, left)
}

// clear makes room for a message.
func (b *importProgressBar) clear() {
	if b.out != nil {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// end leaves the line to others.
func (b *importProgressBar) end() {
	if b.out != nil {
		b.draw()
		_, _ = fmt.Fprintln(b.out)
	}
}
