// Package pgembed gives a machine without a configured database its own PostgreSQL. It finds or fetches the server's
// binaries, keeps one cluster in a directory, and returns its address.
//
// # What is authoritative
//
// The data directory. The PostgreSQL process belongs to it and not to the Go process that started it. So a killed Go
// process leaves the database running, and the next Start adopts it. Several processes may use one directory; the last
// one to Stop shuts the database down. Two flock files coordinate them, and the kernel releases both when a process
// dies:
//
//	postgres.start.lock   exclusive while a process starts, stops or inspects the cluster
//	postgres.users.lock   shared by every process that uses the cluster; a process that gets it exclusively is alone
//
// Lock order: start, then users.
//
// # Files
//
//	DIR/postgres/         owned by the user PostgreSQL runs as, mode 0700; or, if that user cannot get there, a
//	                      symbolic link to a directory under /var/lib/holdfast where it can
//	DIR/postgres/data     the cluster
//	DIR/postgres/run      the Unix socket; the only way in, so the directory's mode is the access control
//	DIR/postgres/log      what PostgreSQL says
package pgembed
