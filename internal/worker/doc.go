// Package worker runs agents. It claims queued tasks into free slots, executes them under a lease,
// writes their events behind a fence, and rescues the runs of dead processes.
//
// # Who is authoritative
//
// The database. Its clock judges leases, its row locks assign attempts, and the attempt, with the
// time of its claim, fences every write. Nothing that this package believes about itself lets it write. A slow process that
// was declared dead gets task.LeaseLost for each of its writes. It cancels its runs and
// re-registers under another id.
//
// While the database is unavailable, no process can be declared dead. Runs go on until they block
// on their emission window, and continue when the database is back. A process rescues others only
// after its own lease has been renewed without a break for a whole TTL. So the first process back
// does not rescue the runs of all others.
//
// # A run
//
//	claimed -> executing -> settled         the executor parked or ended the task, or returned
//	                     -> given back      retryable error, or the server stops
//	                     -> waiting         the agent is away; the task keeps its place
//	                     -> handed over     the run API writes the events (tasks.posted) until the run is over
//	                     -> lost            fenced; nothing more is written
//
// A breaker for each agent limits how many runs are starting while the agent is away and when it
// returns. A run that may have ended its process starts alone.
//
// # Memory
//
// A run takes bytes from budgets of the process: for its message (Options.Memory) when it starts, for
// an event that its executor reads (Lines) as the event grows, and for events that are not committed
// (Events). A run that has Lines may wait for Events. The commit returns Events, whatever their run
// waits for meanwhile, so runs do not wait for each other in a circle.
//
// # Goroutines
//
//	claim loop   one; woken by hints, by freed slots and by a jittered poll
//	run          one per run, plus a watcher for its deadlines and cancellation
//	keeper       one; renews the lease, rescues
//
// A duty of package upkeep calls Pool.Reconcile, which compares the runs of this process with
// the database.
package worker
