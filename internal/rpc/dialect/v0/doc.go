// Package v0 is what the 0.x versions have in common on JSON-RPC: parts, files,
// roles and the limits of ids. They differ in the name of a part's discriminator,
// and each accepts both on input.
package v0
