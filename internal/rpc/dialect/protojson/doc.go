// Package protojson is the common part of the versions whose data model is a proto file, as ProtoJSON.
// 0.3 speaks a2a.v1 over HTTP+JSON and gRPC. lf.a2a.v1 is 1.0. The two differ in a few names and in
// parts.
package protojson
