package worker

import "time"

// restFactor is how many times as long as a scan took the next one waits. So scans take at most a
// twentieth of the time, however many rows they read.
const restFactor = 20

// rest spaces the scans of the queue's running rows. While a session keeps an old snapshot, for example
// a dump, vacuum removes no row of an ended task, and a scan reads all of them.
type rest struct{ until time.Time }

func (r *rest) over(now time.Time) bool { return !now.Before(r.until) }

// begin starts a rest after a scan.
func (r *rest) begin(begun, ended time.Time) { r.until = ended.Add(restFactor * ended.Sub(begun)) }
