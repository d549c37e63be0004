// Package bench measures the built server over HTTP, as its users see it. Replicas run as processes on one PostgreSQL
// whose commits reach the disk. Beside these results it measures the raw limits of the parts. README.md says what
// each number means and has recorded results.
package bench
