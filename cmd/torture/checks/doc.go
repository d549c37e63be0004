// Package checks tests any server of A2A from outside, at one or several addresses. Does it keep what it acknowledged, over
// restarts too? Do all of its clients learn the same?
//
// Each check of checks.go tests one clause of the specification or one promise. It creates tasks with scripts that the agent behind
// the server understands (Scripts). It records all answers in a ledger, and reads the tasks at the end (verify). Package judge
// compares the two, as it compares ledgers with the tables in the tests of Holdfast. Here the log of a task is what a stream from
// its beginning shows, or else what the server says at the end.
//
// It uses the client of the command line, which speaks every version over every binding, and each request once: a retry would hide
// faults. The recorder keeps what went over the wire, for the evidence of violations.
package checks
