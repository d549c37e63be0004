package store

import "time"

// restFactor is how many times as long as a look took the next one waits. So looks take at most a
// twentieth of the time, however many rows they read.
const restFactor = 20

// Rest spaces looks that may read many dead rows. While a session keeps an old snapshot, for example a
// dump, vacuum removes no row of an ended task and no index entry of a delivered webhook, and a look from
// the first one reads all of them (decision 0061).
type Rest struct{ until time.Time }

// Over reports whether the next look may begin.
func (r *Rest) Over(now time.Time) bool { return !now.Before(r.until) }

// Begin starts a rest after a look. It lasts for least at least.
func (r *Rest) Begin(begun time.Time, least time.Duration) {
	ended := time.Now()
	r.until = ended.Add(max(least, restFactor*ended.Sub(begun)))
}
