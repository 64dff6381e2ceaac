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

// importProgressBar shows the progress of an import at a terminal. One line and one number need no more than a carriage
// return, so it uses no library. It also works where the size is not known.
type importProgressBar struct {
	out   io.Writer // nil: nothing is shown
	size  int64     // of the input; 0: not known
	begun time.Time
	drawn time.Time
	lines int64 // of this run
	from  int64 // the offset where this run began
	bytes int64 // the offset that it has reached
}

func newImportProgress(con *console, wanted bool, size int64) *importProgressBar {
	bar := &importProgressBar{size: size, begun: time.Now()}
	if file, ok := con.err.(*os.File); ok && wanted && !con.format.problems() && isTerminal(file) {
		bar.out = file
	}
	return bar
}

// isTerminal says whether a person reads it.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// skip begins at an offset in the input.
func (b *importProgressBar) skip(offset int64) { b.from, b.bytes = offset, offset }

// advance counts a line that ends at an offset in the input.
func (b *importProgressBar) advance(offset int64) {
	b.lines++
	b.bytes = offset
	if b.out != nil && time.Since(b.drawn) >= progressEvery {
		b.drawn = time.Now()
		b.draw()
	}
}

func (b *importProgressBar) draw() {
	elapsed := time.Since(b.begun)
	rate := float64(b.lines) / max(elapsed.Seconds(), 0.001)
	if b.size == 0 {
		_, _ = fmt.Fprintf(b.out, "\r\x1b[K%d lines, %.0f a second", b.lines, rate)
		return
	}
	share := min(1, float64(b.bytes)/float64(b.size))
	full := int(share * progressWidth)
	left := float64(max(0, b.size-b.bytes)) / float64(max(1, b.bytes-b.from)) // of what this run has done
	_, _ = fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %3.0f %%, %d lines, %.0f a second, %s left",
		strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), 100*share, b.lines, rate,
		time.Duration(float64(elapsed)*left).Round(time.Second))
}

// clear makes room for a message.
func (b *importProgressBar) clear() {
	if b.out != nil {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// end draws the bar a last time, and ends its line.
func (b *importProgressBar) end() {
	if b.out != nil {
		b.draw()
		_, _ = fmt.Fprintln(b.out)
	}
}
