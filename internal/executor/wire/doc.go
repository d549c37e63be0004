// Package wire is the vocabulary in which Holdfast talks to agents that are not
// Go: the run document that starts a run, and the events that the agent answers
// with. The http and command executors share it and differ only in how the bytes
// travel. docs/executors.md describes it for authors of agents, and
// docs/executor.schema.json for their tools; a test compares the schema with
// this decoder.
//
// A member set to null counts as absent, except as the value of data. Unknown
// and duplicate members are refused by name, because in a hand-written agent
// they are typing errors. What is opaque (data, metadata) keeps its numbers,
// escapes and key order.
package wire

// Version of the vocabulary, as sent in the run document. Additions do not raise it.
const Version = 1

// MaxDepth is how deeply arrays and objects of an event may nest.
const MaxDepth = 100

// DefaultMaxEvent is the size in bytes of the largest event that is read when
// the configuration names no other.
const DefaultMaxEvent = 16 << 20
