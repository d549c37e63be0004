// Package task is the domain model: what a task is, which states it has, and how its log folds into
// the task that a client sees. It knows no wire format, no database and no clock.
//
// # States
//
// A task starts as submitted, meaning that a message waits for a worker.
//
//	submitted      -> working input-required auth-required completed failed canceled rejected
//	working        -> submitted working input-required auth-required completed failed canceled rejected
//	input-required -> submitted canceled
//	auth-required  -> submitted canceled
//	completed      ->
//	failed         ->
//	canceled       ->
//	rejected       ->
//
// The last four are terminal: nothing changes such a task again. In input-required and
// auth-required a task is parked: it has no queue row and no worker. The next message makes it
// submitted again, on any replica. If a message is already waiting when the run parks, working goes
// back to submitted instead.
//
// Tests compare this diagram with the table next in state.go and with the CHECK constraint on
// holdfast.tasks.
//
// # The log
//
// A task is the fold of its events in the order of Seq, which counts 1, 2, 3 … without a gap.
// Task.Apply is the only implementation of that fold.
package task
