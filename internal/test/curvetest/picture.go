package curvetest

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// The layout of a picture, in pixels.
const (
	columns               = 3
	panelWide, panelHigh  = 400, 250
	plotLeft, plotTop     = 62, 30
	plotWide, plotHigh    = 320, 130
	legendHigh, legendRow = 56, 14
)

// colors differ for people who do not see all of them, too.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#444444", "#b22222"}

// Picture is an SVG with a panel for each chart. The first third, which is not judged, is gray.
func (b *Book) Picture(title string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var charts []*Chart
	var end time.Duration
	all := b.ordered()
	for _, c := range all {
		if !slices.Contains(charts, c.Chart) {
			charts = append(charts, c.Chart)
		}
		for _, p := range c.Points {
			end = max(end, p.At)
		}
	}
	rows := (len(charts) + columns - 1) / columns
	var s strings.Builder
	wide, high := columns*panelWide, rows*panelHigh+36
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", wide, high, wide, high)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", wide, high)
	fmt.Fprintf(&s, `<text x="12" y="22" font-size="14" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
	for i, chart := range charts {
		var curves []*Curve
		for _, c := range all {
			if c.Chart == chart {
				curves = append(curves, c)
			}
		}
		fmt.Fprintf(&s, `<g transform="translate(%d,%d)">`+"\n", i%columns*panelWide, i/columns*panelHigh+36)
		panel(&s, chart, curves, end)
		s.WriteString("</g>\n")
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func panel(s *strings.Builder, chart *Chart, curves []*Curve, end time.Duration) {
	var most float64
	for _, c := range curves {
		for _, p := range c.Points {
			if p.Value > most { // never for a gap
				most = p.Value
			}
		}
	}
	step := tick(most, chart.Unit)
	top := step * math.Max(1, math.Ceil(most/step))
	x := func(at time.Duration) float64 { return plotLeft + plotWide*float64(at)/float64(max(end, 1)) }
	y := func(v float64) float64 { return plotTop + plotHigh*(1-v/top) }
	fmt.Fprintf(s, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", plotLeft, plotTop-10, html.EscapeString(chart.Name))
	fmt.Fprintf(s, `<rect x="%d" y="%d" width="%.0f" height="%d" fill="#eee"/>`+"\n", plotLeft, plotTop, plotWide/3.0, plotHigh)
	for v := 0.0; v <= top*1.001; v += step {
		fmt.Fprintf(s, `<path d="M%d %.1fh%d" stroke="#ccc"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft, y(v), plotWide, plotLeft-5, y(v)+4, chart.Unit.text(v))
	}
	for i := range 4 {
		at := end * time.Duration(i) / 3
		anchor := [...]string{"start", "middle", "middle", "end"}[i]
		fmt.Fprintf(s, `<text x="%.1f" y="%d" text-anchor="%s">%.3g min</text>`+"\n", x(at), plotTop+plotHigh+14, anchor, at.Minutes())
	}
	for i, c := range curves {
		color := colors[i%len(colors)]
		fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="1.3"/>`+"\n", path(c.Points, x, y), color)
		per := legendHigh / legendRow
		left, down := plotLeft+i/per*150, plotTop+plotHigh+32+i%per*legendRow
		fmt.Fprintf(s, `<rect x="%d" y="%d" width="10" height="3" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", left, down-5, color, left+14, down, html.EscapeString(c.Name))
	}
}

// path draws lines between samples, with gaps.
func path(points []Point, x func(time.Duration) float64, y func(float64) float64) string {
	var d strings.Builder
	move := "M"
	for _, p := range points {
		if math.IsNaN(p.Value) {
			move = "M"
			continue
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", move, x(p.At), y(p.Value))
		move = "L"
	}
	return d.String()
}

// tick is the distance of the lines of a scale, such that there are two to five.
func tick(most float64, u Unit) float64 {
	if most <= 0 {
		return 1
	}
	unit := 1.0
	if u == Bytes {
		for most/unit >= 1024 {
			unit *= 1024
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(most/unit)))
	for _, f := range []float64{0.2, 0.5, 1, 2} {
		if step := f * power * unit; most/step <= 5 {
			return step
		}
	}
	return 2 * power * unit
}
