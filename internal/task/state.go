package task

// State is where a task stands. The numbers are stored; see migrations.
type State uint8

// The states, in the order in which the database knows them: below
// StateInputRequired a run is wanted or under way, from StateCompleted on
// nothing changes any more.
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

// States lists every state a task can be stored in.
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

// String is the name that operators and the older dialects use, such as
// "input-required".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unspecified"
}

// ParseState is the inverse of String. It also reads the spelling "cancelled".
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

// Terminal reports whether the task has ended for good.
func (s State) Terminal() bool { return s >= StateCompleted }

// Parked reports whether the task waits for its client, with no run.
func (s State) Parked() bool { return s == StateInputRequired || s == StateAuthRequired }

// Settled reports whether a blocking caller has its answer: terminal or parked.
func (s State) Settled() bool { return s >= StateInputRequired }

// CanBecome reports whether the table allows to follow s.
func (s State) CanBecome(to State) bool {
	for _, n := range next[s] {
		if n == to {
			return true
		}
	}
	return false
}
