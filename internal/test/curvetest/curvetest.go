// Package curvetest judges whether what a long test samples stays flat, and writes the samples as a table, as CSV and as a picture.
package curvetest

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Unit is what the values of a chart count.
type Unit string

// The units.
const (
	Bytes Unit = "bytes"
	Count Unit = "count"
)

// Chart is a set of curves of one unit, which are drawn together.
type Chart struct {
	Name string
	Unit Unit
	// A curve grows if it gains more than Part of its value and more than Most, in its unit.
	Part, Most float64
}

// Curve is a series of samples.
type Curve struct {
	Chart *Chart
	Name  string
	// Why says why the curve is not judged; "" if it is.
	Why    string
	Points []Point
}

// Point is a sample. A value that is not a number is a gap: another process follows.
type Point struct {
	At    time.Duration
	Value float64
}

// Book has the curves of one test. Any goroutine may add samples.
type Book struct {
	mu     sync.Mutex
	Curves []*Curve
}

// Add adds a sample to a curve of a chart, which it begins if it is new. why is that of the curve.
func (b *Book) Add(c *Chart, name, why string, at time.Duration, value float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.Curves, func(one *Curve) bool { return one.Chart == c && one.Name == name })
	if i < 0 {
		i = len(b.Curves)
		b.Curves = append(b.Curves, &Curve{Chart: c, Name: name, Why: why})
	}
	b.Curves[i].Points = append(b.Curves[i].Points, Point{at, value})
}

// least is the number of samples below which a curve says nothing.
const least = 12

// steady is how much of the pairs of samples must rise for a trend: Kendall's tau, which is 0 for noise and 1 for a curve that only
// rises.
const steady = 0.25

// Verdict is what a curve shows after its first third, in which caches fill and the first data reach the end of their retention.
type Verdict struct {
	// First is the median of the first third, Middle and Last those of the others.
	First, Middle, Last float64
	Tau                 float64 // of the last two thirds
	Grows               bool
	Few                 bool // too few samples
}

// Judge judges a curve. It grows if the last third has a higher median than the middle one, by more than the chart allows, and the
// samples of both rise more often than chance lets them. Peaks move no median, and a wave rises as often as it falls.
func (c *Curve) Judge() Verdict {
	points := slices.DeleteFunc(slices.Clone(c.Points), func(p Point) bool { return math.IsNaN(p.Value) })
	if len(points) < least {
		none := math.NaN()
		return Verdict{First: none, Middle: none, Last: none, Few: true}
	}
	begin, end := points[0].At, points[len(points)-1].At
	third := (end - begin) / 3
	var first, middle, last []float64
	for _, p := range points {
		switch {
		case p.At < begin+third:
			first = append(first, p.Value)
		case p.At < begin+2*third:
			middle = append(middle, p.Value)
		default:
			last = append(last, p.Value)
		}
	}
	v := Verdict{First: median(first), Middle: median(middle), Last: median(last)}
	v.Tau = tau(append(middle, last...))
	grown := v.Last - v.Middle
	v.Grows = grown > c.Chart.Part*v.Middle && grown > c.Chart.Most && v.Tau > steady
	return v
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// tau is Kendall's coefficient of values in the order of time. Equal ones count for neither side.
func tau(values []float64) float64 {
	sum, pairs := 0, 0
	for i := range values {
		for j := i + 1; j < len(values); j++ {
			sum += cmp.Compare(values[j], values[i])
			pairs++
		}
	}
	return float64(sum) / float64(max(pairs, 1))
}

// ordered are the curves by their charts, in the order of these, and by their names.
func (b *Book) ordered() []*Curve {
	var charts []*Chart
	for _, c := range b.Curves {
		if !slices.Contains(charts, c.Chart) {
			charts = append(charts, c.Chart)
		}
	}
	return slices.SortedFunc(slices.Values(b.Curves), func(a, b *Curve) int {
		return cmp.Or(cmp.Compare(slices.Index(charts, a.Chart), slices.Index(charts, b.Chart)), cmp.Compare(a.Name, b.Name))
	})
}

// Grown returns an error that names the curves that grow, and by how much.
func (b *Book) Grown() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []error
	for _, c := range b.ordered() {
		switch v := c.Judge(); {
		case c.Why != "":
		case v.Few:
			all = append(all, fmt.Errorf("%s of %s: %d samples are too few", c.Chart.Name, c.Name, len(c.Points)))
		case v.Grows:
			all = append(all, fmt.Errorf("%s of %s grows: from %s to %s (median of the middle and of the last third; tau %.2f)",
				c.Chart.Name, c.Name, c.Chart.Unit.text(v.Middle), c.Chart.Unit.text(v.Last), v.Tau))
		}
	}
	return errors.Join(all...)
}

// Table is the curves in Markdown.
func (b *Book) Table() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var t strings.Builder
	t.WriteString("| measure | of | samples | first third | middle third | last third | tau | verdict |\n|---|---|--:|--:|--:|--:|--:|---|\n")
	for _, c := range b.ordered() {
		v := c.Judge()
		u, verdict := c.Chart.Unit, "flat"
		switch {
		case c.Why != "":
			verdict = "not judged: " + c.Why
		case v.Few:
			verdict = "too few samples"
		case v.Grows:
			verdict = "**grows**"
		}
		fmt.Fprintf(&t, "| %s | %s | %d | %s | %s | %s | %.2f | %s |\n", c.Chart.Name, c.Name, len(c.Points), u.text(v.First), u.text(v.Middle), u.text(v.Last), v.Tau, verdict)
	}
	return t.String()
}

// CSV writes all samples, one in a row.
func (b *Book) CSV(w io.Writer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := csv.NewWriter(w)
	_ = out.Write([]string{"seconds", "measure", "of", "unit", "value"})
	for _, c := range b.ordered() {
		for _, p := range c.Points {
			value := ""
			if !math.IsNaN(p.Value) {
				value = strconv.FormatFloat(p.Value, 'f', -1, 64)
			}
			_ = out.Write([]string{strconv.FormatFloat(p.At.Seconds(), 'f', 1, 64), c.Chart.Name, c.Name, string(c.Chart.Unit), value})
		}
	}
	out.Flush()
	return out.Error()
}

// text formats a value for people.
func (u Unit) text(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case u != Bytes:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	units := []string{"B", "KiB", "MiB", "GiB"}
	i := 0
	for ; math.Abs(v) >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	digits := 1
	if v >= 100 || i == 0 || v == math.Trunc(v) {
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + units[i]
}
