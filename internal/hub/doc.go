// Package hub brings committed events to those who wait for them on this
// replica: streams, and callers that block until a task settles.
//
// A topic is a task with local subscribers. It keeps a small ring of its newest
// events, contiguous up to its tail. Events reach it in three ways, and the hub
// does not care which:
//
//   - this replica's own commits, handed over in memory;
//   - hints of other replicas (NOTIFY carries task:seq, never content), which mark
//     the topic dirty so that the reader fetches what is new in all dirty topics
//     with one query;
//   - a slow poll of all topics, which finds whatever a lost hint has hidden.
//
// A subscriber holds nothing but the seq it has seen. While that lies in the ring
// it is served from memory; when it has fallen out, it reads the table at its own
// pace. So nobody is waited for, nothing is buffered without bound, and an event
// can be late but neither lost nor doubled.
//
// # Order of subscribing
//
// Register (Subscribe), then read the snapshot, then Start at its seq. Since LISTEN
// precedes registration and registration precedes the read, an event is either in
// the read or announced after it.
//
// # Goroutines
//
//	listen    one LISTEN connection; parses hints, marks topics, never queries
//	notify    one connection with synchronous_commit=off; sends what was marked
//	catchUp   fetches dirty topics
//	poll      compares the length of every topic's log with its tail
//
// Lock order: Hub.mu, then topic.mu; a topic's lock is never held across I/O.
package hub
