// Package task is the domain: what a task is, which states it passes through,
// and how its log folds into what a client sees. It knows no wire format, no
// database and no clock.
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
// The last four are terminal: nothing changes such a task again. input-required
// and auth-required park it: no queue row, no worker, and the next message makes
// it submitted again on whichever replica receives it. working goes back to
// submitted when a message is already waiting at the moment the run would park.
//
// The diagram, the table next in state.go and the CHECK constraint on
// holdfast.tasks are compared by tests.
//
// # The log
//
// A task is the fold of its events in the order of Seq, which counts 1, 2, 3 …
// without a gap. Task.Apply is that fold, and the only place where it is written.
package task
