// Package command is the executor for agents that are programs: one process per
// run, the run document on its stdin, events as NDJSON on its stdout, whatever it
// has to say to its operator on stderr. docs/executors.md has the author's side.
//
// # Who owns the process
//
// Three goroutines serve a run. The one that calls Execute reads stdout and plays
// the events. The keeper starts the process, waits for it and reaps it; it stays
// on one OS thread all that time, because the kernel kills the child when the
// thread that forked it ends (Pdeathsig), and a thread of the Go runtime may end
// before the server does. os/exec copies stdin and stderr.
//
// The process leads a process group. It is stopped as a group: SIGTERM, the
// grace, SIGKILL; and when the leader has ended by itself, what remains of the
// group is killed, so that nothing outlives its run. A signal to the group is
// sent only while the leader is not reaped, since a number that has been given
// back may be another group's. A process that has left the group by setsid can
// escape, and neither stdout nor stderr is waited for on its account.
package command
