// Package bench measures the built server as its users would meet it: over HTTP,
// with replicas as processes on one PostgreSQL whose commits reach the disk, and
// beside what the parts can do without it. README.md says what each number means
// and has recorded results.
package bench
