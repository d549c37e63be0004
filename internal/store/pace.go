package store

import "time"

// paceFactor is how many times as long as a look took the next one waits. So looks take at most a
// twentieth of the time, however many rows they read.
const paceFactor = 20

// Pace spaces looks that may read many dead rows. While a session keeps an old snapshot, for example a
// dump, vacuum removes no row of an ended task and no index entry of a delivered webhook, and a look from
// the first one reads all of them.
//
// A single look that took long says little: the machine was busy, or the connection broke. So the pauses after slow looks grow
// from firstPause on, and a fast one begins again.
type Pace struct {
	until time.Time
	last  time.Duration
}

// firstPause is the longest pause after one slow look.
const firstPause = time.Second

// Due reports whether the next look may begin.
func (p *Pace) Due(now time.Time) bool { return !now.Before(p.until) }

// Looked starts the pause after a look that began at begun. It lasts for least at least.
func (p *Pace) Looked(begun time.Time, least time.Duration) {
	ended := time.Now()
	p.last = min(paceFactor*ended.Sub(begun), firstPause+2*p.last)
	p.until = ended.Add(max(least, p.last))
}
