// Package store keeps tasks in PostgreSQL. It is the only writer and, with the
// hub, the only reader of the database; rows and SQLSTATEs do not leave it.
//
// # Writing
//
// Create and Append go through batchers: callers queue, a writer takes all that
// is queued, writes it as one statement in one commit, and repeats. There is no
// timer, so an idle server answers after one commit and a busy one writes more
// per commit. Events of one task always pass through the same writer and keep
// their order.
//
// Every write of a run is fenced by its attempt, and carries how many events the
// attempt has written before (its ordinal). A connection that dies in the middle
// of a commit leaves the outcome unknown; the statement is then repeated as it
// was. If the first copy had been committed, the ordinal no longer fits, nothing
// is written twice, and the task's row tells the two cases apart.
//
// # Locks
//
// A statement locks the tasks row, then its task_queue row. QueueClaim alone starts
// at the queue; it skips whatever is locked there or in tasks, and so waits for nobody.
//
// Webhooks come last: push_cursors, in the order of (task, config_id). Claiming and
// recording deliveries lock no task.
//
// # Payloads
//
// What task_events.payload holds is canonical JSON, ours alone, and stored
// verbatim (type json). Parts have the members of A2A 1.0.
//
//	message   {"id","role":"user|agent","parts":[…],"metadata","extensions","references"}
//	status    {"message":{…},"direct":true,"metadata"}, or null when there is nothing to say
//	artifact  {"index","name","description","parts":[…],"metadata","extensions","event_metadata"}
//	run       {"outcome","error","worker","checkpoint"}
//	part      one of "text", "raw" (base64), "url", "data"; and "filename","media_type","metadata"
//
// Absent members are left out. A message's task and context are its row's, and
// not repeated.
package store
