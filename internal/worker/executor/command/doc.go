// Package command is the executor for agents that are programs. It starts one process per run. The process reads the
// run document on stdin, writes events as NDJSON to stdout, and writes text for the operator to stderr.
// docs/agents/command.md has the author's side.
//
// # Who owns the process
//
// Three goroutines serve a run. The goroutine that calls Execute reads stdout and plays the events. A keeper
// (procgroup) starts the process, waits for it and reaps it. os/exec copies stdin and stderr.
//
// The process leads a process group, and is stopped as a group: SIGTERM, the grace, SIGKILL. When the leader has ended
// by itself, the rest of the group is killed, so that nothing outlives its run. A process that leaves the group by setsid
// can escape; nobody waits for its stdout or stderr.
package command
