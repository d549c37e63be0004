// Package worker runs agents: it claims queued tasks into free slots, executes
// them under a lease, writes what they emit behind a fence, and rescues what dead
// processes left.
//
// # Who is authoritative
//
// The database. Its clock judges leases, its row lock gives out attempts, and the
// attempt fences every write. Nothing that this package believes about itself
// lets it write: a process that was declared dead while it was only slow finds
// each of its writes refused (task.LeaseLost), cancels its runs and registers
// anew under another id.
//
// When the database itself is away, nobody can be declared dead. Runs go on, wait
// in their emission window, and continue when it is back; a process rescues
// others only after its own lease has been renewed without a break for a whole
// ttl, so that the first one back does not rescue the rest.
//
// # A run
//
//	claimed -> executing -> settled         the executor parked or ended the task, or returned
//	                     -> given back      retryable error, or the server stops
//	                     -> lost            fenced; nothing more is written
//
// # Goroutines
//
//	claim loop   one; woken by hints, by freed slots and by a jittered poll
//	run          one per run, plus a watcher for its deadlines and cancellation
//	keeper       one; renews the lease, rescues, reconciles what the database says is ours
package worker
