// Package hub delivers committed events to their subscribers on this replica: streams, and callers
// that block until a task settles.
//
// A topic is a task with local subscribers. It keeps a small ring of its newest events, contiguous
// up to its tail. Events reach a topic in three ways:
//
//   - in memory, from this replica's own commits: the hub relays package signal;
//   - by hints of other replicas (NOTIFY carries task:seq, never content). A hint marks the topic
//     dirty, and one query fetches the new events of all dirty topics;
//   - by a slow poll of all topics, which finds the events whose hints were lost.
//
// A subscriber holds only the last seq it has seen. While the next event is in the ring, the hub
// serves it from memory. When the subscriber has fallen out of the ring, it reads the table at its
// own pace. So a slow subscriber delays nobody, no buffer is unbounded, and an event can be late
// but is neither lost nor delivered twice.
//
// The hub also carries signals between processes. It sends the announcements of this replica's
// store to the other replicas as hints, after the commit: NOTIFY takes a lock of the whole cluster until its commit is on disk, and
// in the writing transaction it cost three quarters of the throughput. Hints have no content, because every login may LISTEN. It passes their hints to the parts of this replica that
// subscribed to package signal.
//
// A subscription ends early when the hub closes, and in two more cases: the database has lost
// events that it has returned (a failover, a restore), or this process has not reached the database
// for longer than a lease lasts. The client then resumes, from a snapshot if its position is lost.
//
// # Order of subscribing
//
// Register (Subscribe), then read the snapshot, then Start at its seq. LISTEN precedes registration
// and registration precedes the read. So an event is either in the read or announced after it.
//
// # Goroutines
//
//	listen    one LISTEN connection; parses hints, marks topics, never queries
//	notify    one connection with synchronous_commit=off; sends the queued hints
//	catchUp   fetches dirty topics
//	poll      compares the length of every topic's log with its tail
//	watch     ends the subscriptions of a process that is cut off
//
// Lock order: Hub.mu, then topic.mu; a topic's lock is never held across I/O.
package hub
