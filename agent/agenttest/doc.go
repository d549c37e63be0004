// Package agenttest runs an agent in a test, in the worker of the server and on a PostgreSQL that it starts.
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
// the emitter refuses one, retries, checkpoints, timeouts, cancels and crashes. Only a retry starts at once instead of after
// its backoff.
//
// Each Task that New returns has a PostgreSQL database of its own. All test processes of a user share a server, which ends 15
// seconds after the last of them; the test binary, started once more, sees to that. It runs the machine's PostgreSQL (14 or
// later; HOLDFAST_PG_BIN names another directory of programs), or one that the first test downloads and keeps.
// HOLDFAST_TEST_DATABASE_URL names a server to use instead, with a role that may create databases and roles. The database of a
// failed test stays for half an hour, and on a server that you name until you drop it; the test's output shows how to connect.
//
// Start does not wait for the agent. While it runs, a test can wait for an event (Turn.Await), and then cancel the task, take
// away its lease, or stop the server.
//
// The agent and the worker run in this process and take real time. Inside a bubble of testing/synctest, timeouts take no time.
package agenttest
