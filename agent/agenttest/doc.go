// Package agenttest runs an agent in a test, without a server and without PostgreSQL.
//
// A test starts a Task and talks to it as a client would. Say runs the agent until the task ends or asks something, and
// Want compares what the agent has emitted:
//
//	func TestGreets(t *testing.T) {
//		task := agenttest.New(t, greeter{})
//		task.Say("hi").Want("working", `input-required: "What is your name?"`)
//		task.Say("Ada").Want("working", `artifact greeting: "Hello, Ada!"`, "completed")
//	}
//
// The agent runs in the server's own worker, so everything that docs/executors.md promises holds: the order of events, when
// the emitter refuses one, retries, checkpoints, timeouts, cancels and crashes. Only the log is in memory, and a retry
// starts at once instead of after its backoff.
//
// Start does not wait for the agent. While it runs, a test can wait for an event (Turn.Await), and then cancel the task, take
// away its lease, or stop the server.
//
// Everything runs in this process and takes real time. Inside a bubble of testing/synctest, timeouts take no time.
package agenttest
