// Package remote is the worker API: processes that connect claim runs of agents with executor.kind worker, renew the leases
// of these runs, and give them back. They do the runs over the run API (package runapi). docs/worker-api.yaml describes it.
//
// # Who is authoritative
//
// The database, as in package worker. The lease of a run is in its queue row. Any replica answers any request: what this
// package remembers of a worker saves statements, and nothing is wrong when it is lost.
//
// # Parts
//
//	API      the requests: credentials, bodies, answers
//	broker   the claims that wait here, and the loop that claims runs for them: one statement for many claims
//	beats    the heartbeats that wait here, woken by hints about their runs
//	registry the workers that this replica has answered lately
//	watch    a duty of each process: expired leases, timeouts, cancels, retired workers, agents without workers
//
// # Locks
//
// broker.mu, registry.mu and beats.mu are never held together, nor across I/O.
package remote
