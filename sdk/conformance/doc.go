// Package conformance has the suite of tests for SDKs: see README.md.
package conformance
