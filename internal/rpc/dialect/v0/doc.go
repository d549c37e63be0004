// Package v0 is what the 0.x versions have in common on JSON-RPC: parts, files
// and roles. They differ in the name of a part's discriminator,
// and each accepts both on input.
package v0
