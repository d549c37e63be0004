package push

import (
	"math/rand/v2"
	"time"
)

// Schedule says when a delivery that failed is tried again, and when that ends.
type Schedule struct {
	First time.Duration // before the second attempt; doubled for each further one
	Most  time.Duration // between two attempts
	// A configuration is disabled when it has failed for GiveUpAfter and at least MinAttempts
	// times; 0: never.
	GiveUpAfter time.Duration
	MinAttempts int
}

// longestRetryAfter is how long a receiver may have us wait.
const longestRetryAfter = 24 * time.Hour

// delay is how long to wait after so many failures, this one included. Half of it is random,
// so that the deliveries that a receiver's outage has gathered do not come back together.
// A receiver that says how long is believed, if that is longer.
func (s Schedule) delay(failures int, retryAfter time.Duration) time.Duration {
	d := s.First
	for i := 1; i < failures && d < s.Most; i++ {
		d *= 2
	}
	d = min(d, s.Most)
	return max(d/2+rand.N(d/2+1), retryAfter)
}

// over reports whether a configuration that fails has had its time.
func (s Schedule) over(failures int, failingFor time.Duration) bool {
	return s.GiveUpAfter > 0 && failures >= s.MinAttempts && failingFor >= s.GiveUpAfter
}
