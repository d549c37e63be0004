package limit

import "github.com/holdfast-a2a/holdfast/internal/task"

// Budgets are the budgets of a process, one for each kind of holder, so that one kind cannot starve another.
//
// Some work holds bytes while it waits for more. There is no circle, because bytes are waited for in one order:
//
//   - A request waits for bytes of Requests with a time limit, and then gives up all that it holds. While it holds some, it may wait
//     for those of Streams (an answer that is a stream), or of Runs (an upload of the run API).
//   - An event of a run waits for bytes of Runs, for as long as it takes. One event at a time has the turn, and waits for none.
//   - A stream waits for bytes of Streams, and holds none of them meanwhile. Those that others hold end when their clients read.
//   - Headers, messages of runs and what is kept never wait.
type Budgets struct {
	Headers  *Budget   // of connections: headers without an accepted credential
	Requests *Requests // bodies and answers
	Streams  *Budget   // what streams send
	Runs     *Runs     // messages and events of runs
	Kept     *Budget   // what is kept of ended tasks, in two caches (Kept)
}

// MemoryShare returns the bytes in flight that a limit of memory allows by default: half.
func MemoryShare(limit int64) int64 { return limit / 2 }

// NewBudgets divides bytes in flight into budgets. Headers and what is kept are beside them.
func NewBudgets(inFlight int64) *Budgets {
	sixteenth := inFlight / 16
	return &Budgets{
		Headers: NewBudget(sixteenth), Requests: NewRequests(inFlight / 2), Streams: NewBudget(2 * sixteenth),
		Runs: NewRuns(4 * sixteenth), Kept: NewBudget(2 * sixteenth),
	}
}

// Each calls visit with a reading of each budget. A nil Budgets has none.
func (b *Budgets) Each(visit func(name string, s BudgetStat)) {
	if b == nil {
		return
	}
	visit("headers", b.Headers.Stat())
	visit("requests", b.Requests.Stat())
	visit("streams", b.Streams.Stat())
	visit("runs", b.Runs.Stat())
	visit("kept", b.Kept.Stat())
}

// SmallBytes is the size of a body, an answer or an event, in bytes, up to which it does not compete with large ones.
const SmallBytes = 64 << 10

// Holder is whose bytes they are. The zero Holder is nobody in particular, and has no share.
type Holder struct {
	Owner            task.Owner
	Address, Agent   string
	Resume           bool // bodies of resume URLs of the agent
	Worker, Operator bool
}
