package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// count writes 1234567 as 1,234,567.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var text strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			text.WriteByte(',')
		}
		text.WriteRune(digit)
	}
	return text.String()
}

// rate writes a number per second with as many digits as it is worth.
func rate(perSecond float64) string {
	if perSecond >= 100 || perSecond == 0 {
		return count(int64(perSecond+0.5)) + "/s"
	}
	return strconv.FormatFloat(perSecond, 'f', 1, 64) + "/s"
}

func bytesText(n int64) string {
	const unit = 1024
	size, suffix := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < unit {
			break
		}
		size, suffix = size/unit, next
	}
	if suffix == "B" {
		return count(n) + " B"
	}
	return fmt.Sprintf("%.1f %s", size, suffix)
}

// span writes a duration in the two greatest units that it has: 90 ms, 1.2 s, 3 s, 4 m 10 s, 3 h 5 m, 2 d 4 h.
func span(d time.Duration) string {
	whole := func(large, small time.Duration, largeUnit, smallUnit string) string {
		if rest := d % large / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", d/large, largeUnit, rest, smallUnit)
		}
		return fmt.Sprintf("%d %s", d/large, largeUnit)
	}
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return whole(time.Minute, time.Second, "m", "s")
	case d < day:
		return whole(time.Hour, time.Minute, "h", "m")
	}
	return whole(day, time.Hour, "d", "h")
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// fit cuts or pads text to so many cells of the terminal.
func fit(text string, width int, right bool) string {
	if ansi.StringWidth(text) > width {
		text = ansi.Truncate(text, width, "…")
	}
	pad := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if right {
		return pad + text
	}
	return text + pad
}
