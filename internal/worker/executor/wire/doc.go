// Package wire is the protocol between Holdfast and agents that are not in Go. It has the run document that starts a
// run, and the events of the answer. The http and command executors share it and differ only in the transport.
// docs/executors.md describes it for authors of agents, and docs/executor.schema.json for their tools. A test compares
// the schema with this decoder.
//
// A null member counts as absent, except as the value of data. Unknown and duplicate members are refused by name,
// because in a hand-written agent they are typing errors. Opaque members (data, metadata) keep their numbers, escapes
// and key order.
package wire

// Version is the version of the protocol, as sent in the run document. Additions do not raise it.
const Version = 1

// MaxDepth is how deeply arrays and objects of an event may nest.
const MaxDepth = 100

// DefaultMaxEvent is the default size of the largest event, in bytes.
const DefaultMaxEvent = 16 << 20
