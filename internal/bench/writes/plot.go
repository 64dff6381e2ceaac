package writes

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// The plot: a panel for each table of the throughput, writes per second over clients, both in powers, a line a target.
// It is written as SVG by hand: a library for plots would bring fonts and rasterizers into a program whose work is
// another, and weigh megabytes there.
const (
	panelWidth  = 560
	panelHeight = 400
	marginLeft  = 70
	marginTop   = 40
	marginRight = 150
	marginUnder = 45
)

// colours differ also for people with a colour vision deficiency (P. Tol, "Colour Schemes", "bright" and "muted").
var colours = []string{
	"#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#ccbb44", "#bbbbbb", "#332288", "#882255", "#117733",
	"#999933", "#cc6677", "#000000",
}

// panel is one diagram.
type panel struct {
	title    string
	clients  []int
	low, top float64
	series   []series
}

// series is one target's line; values[i] is at clients[i], 0 where nothing was measured.
type series struct {
	name   string
	colour string
	values []float64
}

// WritePlot writes the throughput as SVG.
func (r Report) WritePlot(out io.Writer) error {
	panels := r.panels()
	var svg strings.Builder
	width, height := panelWidth+marginLeft+marginRight, panelHeight+marginTop+marginUnder
	_, _ = fmt.Fprintf(
		&svg,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width,
		max(1, len(panels))*height,
	)
	_, _ = fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, p := range panels {
		_, _ = fmt.Fprintf(&svg, `<g transform="translate(%d,%d)">`+"\n", marginLeft, i*height+marginTop)
		p.write(&svg)
		svg.WriteString("</g>\n")
	}
	svg.WriteString("</svg>\n")
	_, err := io.WriteString(out, svg.String())
	return err
}

// panels groups the lines of the throughput.
func (r Report) panels() []panel {
	var panels []panel
	for _, line := range r.Lines() {
		if line.Measure != Throughput && line.Measure != Flush {
			continue
		}
		at := slices.IndexFunc(panels, func(p panel) bool { return p.title == title(line.Case) })
		if at < 0 {
			at = len(panels)
			panels = append(panels, panel{title: title(line.Case)})
		}
		panels[at].add(line)
	}
	for i := range panels {
		panels[i].bounds()
	}
	return panels
}

func (p *panel) add(line Line) {
	if !slices.Contains(p.clients, line.Clients) {
		p.clients = append(p.clients, line.Clients)
	}
	at := slices.IndexFunc(p.series, func(s series) bool { return s.name == line.Target })
	if at < 0 {
		at = len(p.series)
		colour := colours[max(0, slices.Index(TargetNames(), line.Target))%len(colours)]
		p.series = append(p.series, series{name: line.Target, colour: colour})
	}
	for len(p.series[at].values) < len(p.clients)-1 {
		p.series[at].values = append(p.series[at].values, 0)
	}
	p.series[at].values = append(p.series[at].values, line.PerSecond.Median)
}

// bounds makes room for all values between powers of ten.
func (p *panel) bounds() {
	p.low, p.top = math.Inf(1), 1
	for _, s := range p.series {
		for _, value := range s.values {
			if value > 0 {
				p.low, p.top = min(p.low, value), max(p.top, value)
			}
		}
	}
	p.low = math.Pow(10, math.Floor(math.Log10(min(p.low, p.top))))
	p.top = max(math.Pow(10, math.Ceil(math.Log10(p.top))), p.low*10)
}

func (p *panel) x(i int) float64 {
	if len(p.clients) == 1 {
		return panelWidth / 2
	}
	return panelWidth * float64(i) / float64(len(p.clients)-1)
}

func (p *panel) y(value float64) float64 {
	return panelHeight * (1 - math.Log(value/p.low)/math.Log(p.top/p.low))
}

func (p *panel) write(svg *strings.Builder) {
	_, _ = fmt.Fprintf(svg, `<text x="%d" y="-15" text-anchor="middle" font-size="14">%s: writes per second</text>`+"\n",
		panelWidth/2, html.EscapeString(p.title))
	for power := p.low; power <= p.top*1.001; power *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if value := power * step; value <= p.top*1.001 {
				_, _ = fmt.Fprintf(svg, `<path d="M0 %.1fH%d" stroke="#ddd"/><text x="-6" y="%.1f" text-anchor="end">%.0f</text>`+
					"\n",
					p.y(value), panelWidth, p.y(value)+4, value)
			}
		}
	}
	for i, clients := range p.clients {
		_, _ = fmt.Fprintf(svg, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", p.x(i), panelHeight+18, clients)
	}
	_, _ = fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="middle">clients</text>`+"\n", panelWidth/2, panelHeight+36)
	for _, s := range p.series {
		p.writeSeries(svg, s)
	}
	p.writeNames(svg)
}

func (p *panel) writeSeries(svg *strings.Builder, s series) {
	var points []string
	for i, value := range s.values {
		if value <= 0 {
			continue
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", p.x(i), p.y(value)))
		_, _ = fmt.Fprintf(svg, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", p.x(i), p.y(value), s.colour)
	}
	_, _ = fmt.Fprintf(svg, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n",
		strings.Join(points, " "), s.colour)
}

// nameHeight keeps the names at the lines' ends apart.
const nameHeight = 14

// writeNames names the lines at their ends, from the top down.
func (p *panel) writeNames(svg *strings.Builder) {
	named := slices.DeleteFunc(slices.Clone(p.series), func(s series) bool { return s.end() == 0 })
	slices.SortFunc(named, func(a, b series) int { return cmp.Compare(b.end(), a.end()) })
	y := math.Inf(-1)
	for _, s := range named {
		y = max(p.y(s.end()), y+nameHeight)
		_, _ = fmt.Fprintf(svg, `<text x="%d" y="%.1f" fill="%s">%s</text>`+"\n", panelWidth+8, y+4, s.colour,
			html.EscapeString(s.name))
	}
}

// end is the last value of the line.
func (s series) end() float64 {
	for _, value := range slices.Backward(s.values) {
		if value > 0 {
			return value
		}
	}
	return 0
}
