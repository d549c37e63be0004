package push

import (
	"math/rand/v2"
	"time"
)

// Schedule says when a failed delivery is retried, and when the retries end.
type Schedule struct {
	First time.Duration // before the second attempt; doubles with each further one
	Most  time.Duration // the longest pause between two attempts
	// A configuration is disabled when it has failed for GiveUpAfter and at least MinAttempts times; 0: never. If its
	// receiver has not accepted any delivery, GiveUpFirstAfter is enough.
	GiveUpAfter      time.Duration
	GiveUpFirstAfter time.Duration
	MinAttempts      int
}

// longestRetryAfter is the longest Retry-After that we respect.
const longestRetryAfter = 24 * time.Hour

// delay returns the pause after a number of failures, including this one. Half of it is random, so that the backlog of
// a receiver's outage does not return all at once. If the receiver sent a longer Retry-After, that is the pause.
func (s Schedule) delay(failures int, retryAfter time.Duration) time.Duration {
	d := s.First
	for i := 1; i < failures && d < s.Most; i++ {
		d *= 2
	}
	d = min(d, s.Most)
	return max(d/2+rand.N(d/2+1), retryAfter)
}

// over reports whether a configuration that fails must be disabled after this time.
func (s Schedule) over(after time.Duration, failures int, failingFor time.Duration) bool {
	return after > 0 && failures >= s.MinAttempts && failingFor >= after
}
