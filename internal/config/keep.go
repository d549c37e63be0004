package config

import (
	"errors"
	"time"
)

// Keep is a retention time: a duration, or forever. The zero value means not given.
type Keep time.Duration

// Forever keeps something until somebody deletes it.
const Forever Keep = -1

var errKeep = errors.New("is not a duration; write 720h or forever")

// ParseKeep parses the format of String.
func ParseKeep(s string) (Keep, error) {
	if s == "forever" {
		return Forever, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errKeep
	}
	return Keep(d), nil
}

func (k Keep) String() string {
	switch k {
	case Forever:
		return "forever"
	case 0:
		return ""
	}
	return show(time.Duration(k))
}

// Duration returns the duration, or 0 for forever.
func (k Keep) Duration() time.Duration { return max(0, time.Duration(k)) }
