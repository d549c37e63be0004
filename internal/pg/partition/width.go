package partition

import (
	"slices"
	"time"
)

// Width is the time that a new partition covers. Periods begin at multiples of it, in UTC.
type Width time.Duration

// Widths of note.
const (
	Month Width = 0
	Day         = Width(24 * time.Hour)
)

// widths are the choices of For, the longest first. A week begins on a Thursday, like the epoch.
var widths = []Width{
	7 * Day, Day, Width(6 * time.Hour), Width(time.Hour), Width(15 * time.Minute), Width(5 * time.Minute), Width(time.Minute), Width(15 * time.Second),
}

// For returns the width for rows that are kept for keep (0: forever). Rows are dropped with their
// whole period, up to one width after their retention. So a period is at most a quarter of the
// retention, but at least 15 seconds, and there are few periods.
func For(keep time.Duration) Width {
	if keep <= 0 || keep > 120*24*time.Hour {
		return Month
	}
	for _, w := range widths {
		if time.Duration(w) <= keep/4 {
			return w
		}
	}
	return widths[len(widths)-1]
}

// Ahead returns how far ahead of now partitions are created.
func (w Width) Ahead() time.Duration {
	if w == Month {
		return 62 * 24 * time.Hour
	}
	return max(3*time.Duration(w), 2*time.Minute)
}

// Floor returns the start of the period that contains t.
func (w Width) Floor(t time.Time) time.Time {
	t = t.UTC()
	if w == Month {
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	// Relative to the Unix epoch, not to Go's zero time, so that ids and timestamps agree.
	d := int64(w)
	n := t.UnixNano()
	return time.Unix(0, n-((n%d)+d)%d).UTC()
}

// Next returns the end of the period that contains t.
func (w Width) Next(t time.Time) time.Time {
	if w == Month {
		return w.Floor(t).AddDate(0, 1, 0)
	}
	return w.Floor(t).Add(time.Duration(w))
}

type period struct{ from, to time.Time }

// gaps returns the missing periods between from and to. The list there must be sorted.
func gaps(there []Partition, w Width, from, to time.Time) (missing []period) {
	for at := from; at.Before(to); {
		// The first period that ends after at.
		i, _ := slices.BinarySearchFunc(there, at, func(p Partition, at time.Time) int {
			if p.To.After(at) {
				return 1
			}
			return -1
		})
		if i < len(there) && !there[i].From.After(at) {
			at = there[i].To
			continue
		}
		p := period{w.Floor(at), w.Next(at)}
		if i > 0 && there[i-1].To.After(p.from) {
			p.from = there[i-1].To
		}
		if i < len(there) && there[i].From.Before(p.to) {
			p.to = there[i].From
		}
		missing = append(missing, p)
		at = p.to
	}
	return missing
}
