// Package bench measures the built server as its users would meet it: over HTTP,
// with two replicas as processes on one PostgreSQL whose commits reach the disk.
// README.md has recorded results and how to read them.
package bench
