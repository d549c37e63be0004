// Package store keeps tasks in PostgreSQL. It is the only writer and, with the
// hub, the only reader of the database; rows and SQLSTATEs do not leave it.
//
// # Writing
//
// Create and Append go through batchers: callers queue items; a writer takes all queued items,
// writes them with one statement in one commit, and repeats. There is no timer. So an idle server
// answers after one commit, and a busy one writes more per commit. All events of one task go
// through the same writer, which keeps their order.
//
// Every write of a run is fenced by its attempt, and carries how many events the attempt has
// written before (its ordinal). A connection that dies during a commit leaves the outcome unknown;
// the store then repeats the same statement. If the first try was committed, the ordinal no longer
// fits and nothing is written twice. The task's row tells the two cases apart. The last event would not tell them apart: a chunk may
// equal the one before.
//
// PostgreSQL starts the parts of a statement that get no row, too. So TaskCreate and EventsAppend do what every batch needs, and
// short statements of the same transaction write what is rare: TaskAdmit (keys, names, limits), PushConfigsNew, TaskRename,
// TurnsNext and TurnsWait.
//
// # Locks
//
// Writers share statements, so they wait for nobody's lock: appends skip locked tasks, and other
// waits end after 100 ms. The batcher's second writer retries blocked items, one task at a time.
//
// A statement locks the tasks row, then its task_queue row. Only QueueClaim and TimersFire start at the
// queue. They skip rows that are locked there or in tasks, so they never wait for a lock. JoinCalls locks
// queue rows and calls, and no task; it skips what is locked, too. RelaysAppend locks one task, then rows of its calls.
//
// Requests, and what the duty calls writes for them, wait for a lock for 100 ms (View.writes). Then they pause without a
// connection, and try again; the duty calls tries something else first (View.Once).
//
// Webhooks come last: push_cursors, in the order of (task, config_id). Statements that claim and
// record deliveries lock no task.
//
// # Payloads
//
// task_events.payload holds canonical JSON in a format of our own, stored verbatim (type json): jsonb reorders keys and rewrites
// numbers, and the JSON of one A2A version would bind the others to it. Parts have the members of A2A 1.0.
//
//	message   {"id","role":"user|agent","parts":[…],"metadata","extensions","references","request":{…}}
//	request   {"metadata","output_modes","extensions","scopes","traceparent","tracestate"}
//	status    {"message":{…},"direct":true,"cause","metadata","artifacts":[…],"cancel":{…}}, or null when there is nothing to say
//	artifact  {"index","name","description","parts":[…],"metadata","extensions","event_metadata"}
//	run       {"outcome","error","worker","checkpoint","until","for","interruptible","calls":[…],"sealed","cancel":{…}}
//	call      {"id","agent","task","answers":true,"request_id","context_id","message":{…},"metadata","relay":true}
//	part      one of "text", "raw" (base64), "url", "data"; and "filename","media_type","metadata"
//
// The cause of a status is for operators; no client sees it. Neither does it see "cancel", the metadata of the request that
// canceled the task; only NoticeFacts reads that. A status that parks the task may list
// the ids of all artifacts so far (tasks.artifacts_seq), for the next run. Absent members are left
// out. The checkpoint of a run with the outcome record is the record of a durable run (docs/executors.md). A message's task and
// context are those of its row and are not repeated.
package store
