package task

import "slices"

// State is the state of a task. The numbers are stored; see migrations.
type State uint8

// The states, in the order of their stored numbers. Below StateInputRequired a run is queued or
// under way. From StateCompleted on nothing changes any more.
const (
	StateUnspecified State = iota
	StateSubmitted
	StateWorking
	StateInputRequired
	StateAuthRequired
	StateCompleted
	StateFailed
	StateCanceled
	StateRejected
)

// States lists every state that a stored task can have.
var States = []State{
	StateSubmitted, StateWorking, StateInputRequired, StateAuthRequired,
	StateCompleted, StateFailed, StateCanceled, StateRejected,
}

var stateNames = [...]string{
	StateUnspecified:   "unspecified",
	StateSubmitted:     "submitted",
	StateWorking:       "working",
	StateInputRequired: "input-required",
	StateAuthRequired:  "auth-required",
	StateCompleted:     "completed",
	StateFailed:        "failed",
	StateCanceled:      "canceled",
	StateRejected:      "rejected",
}

var next = map[State][]State{
	StateSubmitted:     {StateWorking, StateInputRequired, StateAuthRequired, StateCompleted, StateFailed, StateCanceled, StateRejected},
	StateWorking:       {StateSubmitted, StateWorking, StateInputRequired, StateAuthRequired, StateCompleted, StateFailed, StateCanceled, StateRejected},
	StateInputRequired: {StateSubmitted, StateCanceled},
	StateAuthRequired:  {StateSubmitted, StateCanceled},
	StateCompleted:     {},
	StateFailed:        {},
	StateCanceled:      {},
	StateRejected:      {},
}

// String returns the name that operators and the older dialects use, such as "input-required".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unspecified"
}

// ParseState is the inverse of String. It also accepts the spelling "cancelled".
func ParseState(name string) (State, bool) {
	if name == "cancelled" {
		return StateCanceled, true
	}
	for s, n := range stateNames {
		if n == name && State(s) != StateUnspecified {
			return State(s), true
		}
	}
	return StateUnspecified, false
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. An unknown name is StateUnspecified.
func (s *State) UnmarshalText(text []byte) error {
	*s, _ = ParseState(string(text))
	return nil
}

// Terminal reports whether the task has ended for good.
func (s State) Terminal() bool { return s >= StateCompleted }

// Parked reports whether the task waits for its client, with no run.
func (s State) Parked() bool { return s == StateInputRequired || s == StateAuthRequired }

// Settled reports whether a blocking caller has its answer: terminal or parked.
func (s State) Settled() bool { return s >= StateInputRequired }

// CanBecome reports whether the table allows the change from s to to.
func (s State) CanBecome(to State) bool { return slices.Contains(next[s], to) }
