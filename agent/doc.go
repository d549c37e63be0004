// Package agent is for Go programs that are agents themselves: implement
// Executor, and Holdfast keeps the tasks.
//
// # What to rely on
//
// Execute runs at least once for each message of a user. If the process dies in
// the middle, another one calls it again, with a higher Attempt, and what was emitted
// until then stays in the task. So outside effects want Run.IdempotencyKey; an
// artifact with an id of its own is replaced and not doubled when it is emitted
// again; and what is expensive to repeat can be kept with Emitter.Checkpoint and
// read back with Run.Checkpoint.
//
// The context ends when the task is canceled, a timeout passes, the lease is lost
// to another process or this one stops. Return soon then; nothing that is emitted
// afterwards reaches the task.
//
// Returning nil completes the task, unless the run has ended it already by asking,
// failing, rejecting or replying. An error fails it: the client reads the text of
// a Failure, and of any other error only that the agent failed. Retryable errors
// lead to another try.
package agent
