package store

import "time"

// restFactor is how many times as long as a look took the next one waits. So looks take at most a
// twentieth of the time, however many rows they read.
const restFactor = 20

// Rest spaces looks that may read many dead rows. While a session keeps an old snapshot, for example a
// dump, vacuum removes no row of an ended task and no index entry of a delivered webhook, and a look from
// the first one reads all of them.
//
// A single look that took long says little: the machine was busy, or the connection broke. So the rests of slow looks grow
// from firstRest on, and a fast one begins again.
type Rest struct {
	until time.Time
	last  time.Duration
}

// firstRest is the longest rest after one slow look.
const firstRest = time.Second

// Over reports whether the next look may begin.
func (r *Rest) Over(now time.Time) bool { return !now.Before(r.until) }

// Begin starts a rest after a look. It lasts for least at least.
func (r *Rest) Begin(begun time.Time, least time.Duration) {
	ended := time.Now()
	r.last = min(restFactor*ended.Sub(begun), firstRest+2*r.last)
	r.until = ended.Add(max(least, r.last))
}
