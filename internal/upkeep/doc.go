// Package upkeep runs the periodic work of a server: its duties.
//
// A duty works in small pieces, so that each statement holds its locks only for a moment. Each
// piece reports whether more is left; if so, the next piece follows at once. Each duty has a
// goroutine of its own. A slow duty therefore delays neither another duty nor the renewal of the
// process's lease (package worker).
//
// # Duties that one process has
//
// By default every process runs a duty, such as reading the signing keys. One process at a time
// runs a duty that is marked Alone: the one that holds the lease of this name in table leases. Only
// the database's clock judges leases.
//
//	follower ──takes the lease──▶ leader ──stops──▶ gives the lease back
//	    ▲                           │
//	    └───────────────────────────┘ another process took the lease; it could not be
//	                                  renewed in time; this process was declared dead
//
// The leader renews the lease while it works and while it waits, so a long backlog stays with one
// process. When it loses the lease, the context of the current piece ends at once. Without an
// answer from the database it gives up when the lease may have expired: one TTL after it sent its
// last successful renewal. The lease does not fence the writes of a piece. A duty must stay correct
// if two processes run it for a moment.
//
// # Goroutines
//
//	duty      one for each; a follower looks about every half TTL
//	renewal   one for each duty that this process leads
package upkeep
