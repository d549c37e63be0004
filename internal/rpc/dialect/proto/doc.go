// Package proto is what the versions whose data model is a proto file have in common
// as ProtoJSON: a2a.v1, which 0.3 speaks over HTTP+JSON and gRPC, and lf.a2a.v1, which
// is 1.0. They differ in a few names and in parts.
package proto
