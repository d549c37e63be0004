// Package connect is a worker that has no server in its process: it claims runs over the worker API (docs/worker-api.yaml),
// and acts for each run over the run API (docs/run-api.yaml). agent.Connect is its public form.
//
// # Who is authoritative
//
// The server. A run belongs to this worker until the server says something else: by the answer of a heartbeat, or by 410 for a
// request of the run. The worker judges no lease by its own clock, so an outage of the server stops no run.
//
// # A run
//
//	claimed -> executing -> settled    an event ended it, and is stored
//	                     -> released   the worker stops, or the client has canceled the task
//	                     -> lost       the lease was lost, or the server has ended the run; nothing more is posted
//
// # Events
//
// Events queue in a window of 1 MiB for each run. One goroutine posts them, as many as there are at a time, and repeats an upload
// with the same ordinals until an answer comes. So an agent that emits faster than the server stores waits in its emitter.
//
// # Goroutines
//
//	claims      one; waits at the server while there are free slots
//	heartbeats  one; waits at the server while there are runs
//	run         one per run, plus one that posts while events are queued
//
// Locks: emitter.mu, then Worker.mu, then states.mu; none across I/O.
package connect
